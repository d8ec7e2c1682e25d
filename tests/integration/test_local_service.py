"""The local server as a plain HTTP client sees it when nothing goes wrong."""

import contextlib
import http.client
import json
import socket
import threading
from urllib.parse import quote, unquote, urlsplit

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.integration.local_client import INPUTS


class TestKickoff:
    def test_missing_input_is_rejected(self, serve):
        client = serve()

        answer = client.post("/kickoff", {"inputs": {"topic": "tides", "extra": 1}})

        assert answer.status_code == 422
        assert answer.json() == {
            "error": "Missing inputs",
            "message": "These inputs are required: audience.",
            "details": {"missing_inputs": ["audience"]},
        }
        assert client.service.kickoffs == ()


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


class TestStop:
    @pytest.fixture(params=["documented", "deployed"])
    def dialect(self, request):
        return request.param

    @pytest.mark.parametrize("human_input", [False, True])
    def test_running_or_waiting_execution_is_revoked(self, serve, clock, dialect, human_input):
        tasks = (
            ScenarioTask(name="first", seconds=2, human_input=human_input),
            ScenarioTask(name="second", seconds=10),
        )
        client = serve(Scenario(dialect=dialect, kind="flow", tasks=tasks))
        kickoff_id, other = client.kickoff(), client.kickoff()
        clock.now += 3

        answer = client.stop(kickoff_id)

        assert (answer.status_code, answer.json()) == (200, {"status": "stopped", "kickoffId": kickoff_id})
        clock.now += 100
        body = client.status(kickoff_id)
        assert (body.get("state"), body["status"]) in [("REVOKED", "Task was revoked"), (None, "error")]
        assert not client.service.execution(other).standing(clock.now).revoked


class TestTokens:
    @pytest.mark.parametrize("header", [None, "Bearer wrong"])
    def test_request_without_a_token_is_rejected(self, serve, header):
        service = serve().service
        headers = {} if header is None else {"Authorization": header}

        answer = requests.post(f"{service.url}/kickoff", json={"inputs": INPUTS}, headers=headers, timeout=60)

        assert answer.status_code == 401
        assert answer.json() == {"error": "Unauthorized", "message": "The bearer token is missing or invalid."}
        assert answer.headers["www-authenticate"] == "Bearer"
        assert service.kickoffs == ()

    @pytest.mark.parametrize(("may_kick_off", "status"), [(True, 200), (False, 403)])
    def test_user_token_may_be_kept_from_kicking_off(self, serve, may_kick_off, status):
        client = serve(Scenario(user_token_may_kickoff=may_kick_off), user_token="of the user")
        client.token = "of the user"

        assert client.get("/inputs").status_code == 200
        assert client.post("/kickoff", {"inputs": INPUTS}).status_code == status


class TestControl:
    @pytest.mark.parametrize("value", [{"a": 1}, "a/b", "ü 100%"])
    def test_odd_id_is_answered_and_found_again(self, serve, value):
        client = serve()
        client.service.next_kickoff_id(value)

        assert client.kickoff() == value
        encoded = quote(client.service.kickoffs[0].kickoff_id, safe="")
        for path in (f"/status/{encoded}", f"/{encoded}/status"):
            # No library may normalise the path.
            connection = http.client.HTTPConnection("127.0.0.1", client.service.port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", path, headers=client.headers)
                assert connection.getresponse().status == 200
            assert client.service.requests[-1].path == path
        assert client.kickoff() != value

    def test_sleeping_crew_is_answered_by_a_gateway(self, serve, clock):
        client = serve(Scenario(cold_start=30))
        client.service.faults.answer(429)
        clock.now += 1_000

        asleep = [client.get("/inputs"), client.post("/kickoff", {"inputs": INPUTS})]
        clock.now += 29.9
        asleep.append(client.get("/elsewhere"))
        clock.now += 0.1

        assert {answer.status_code for answer in asleep} == {503}
        assert all(answer.headers["content-type"].startswith("text/html") for answer in asleep)
        assert client.service.kickoffs == ()
        assert [request.fault for request in client.service.requests] == ["cold_start"] * 3
        assert [client.get("/inputs").status_code for _ in range(2)] == [429, 200]


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

    def test_dashboard_shows_an_execution_without_a_token(self, serve):
        client = serve(Scenario(dialect="deployed").without_waiting())
        kickoff_id = client.kickoff()
        page = client.service.dashboard_url.format(kickoff_id=kickoff_id)

        shown = requests.get(page, timeout=60)

        assert shown.json().items() >= {"kickoff_id": kickoff_id, "status": "completed"}.items()
        assert client.token not in shown.text
        assert requests.get(f"{page}x", timeout=60).status_code == 404
        assert not any("executions" in path for path in client.get("/openapi.json").json()["paths"])

    def test_stopping_leaves_no_thread_and_no_listener(self):
        before = threading.enumerate()
        service = LocalCrewService().start()

        service.stop()
        service.stop()

        assert threading.enumerate() == before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", service.port), timeout=60)
