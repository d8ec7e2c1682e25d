"""The local server as a plain HTTP client sees it when nothing goes wrong."""

import json
import socket
import threading
from urllib.parse import unquote, urlsplit

import pytest

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask


class TestStatus:
    TASKS = (
        ScenarioTask(name="first", agent="Researcher", seconds=2, output="about {topic}"),
        ScenarioTask(name="second", agent="Writer", seconds=1.5, output="for {audience}"),
    )

    def test_running_then_completed(self, serve, clock):
        client = serve(Scenario(tasks=self.TASKS))
        kickoff_id = client.kickoff()
        clock.now += 2.5

        assert client.status(kickoff_id) == {
            "status": "running",
            "current_task": "second",
            "progress": {"completed_tasks": 1, "total_tasks": 2},
        }
        clock.now += 1
        assert client.status(kickoff_id) == {
            "status": "completed",
            "result": {
                "output": "for sailors",
                "tasks": [
                    {"task_id": "first", "output": "about tides", "agent": "Researcher", "execution_time": 2.0},
                    {"task_id": "second", "output": "for sailors", "agent": "Writer", "execution_time": 1.5},
                ],
            },
            "execution_time": 3.5,
        }


class TestServing:
    def test_connection_keeps_an_odd_token(self, serve):
        service = serve(token="a/b:c@d %'é").service
        as_uri, as_json = urlsplit(service.connection_uri), json.loads(service.connection_json)

        assert (as_uri.scheme, as_uri.hostname, as_uri.port) == ("crew", "127.0.0.1", service.port)
        assert (unquote(as_uri.password), as_uri.path) == (service.token, "/http")
        assert as_json == {
            "conn_type": "crew",
            "host": "127.0.0.1",
            "port": service.port,
            "schema": "http",
            "password": service.token,
        }

    def test_stopping_leaves_no_thread_and_no_listener(self):
        before = threading.enumerate()
        service = LocalCrewService().start()

        service.stop()
        service.stop()

        assert threading.enumerate() == before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", service.port), timeout=60)
