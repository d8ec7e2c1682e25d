"""The webhooks that a kickoff names, as those hear of it who are called."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.airflow_runs import eventually

TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", output="about {topic}", human_input=True),
    ScenarioTask(name="second", agent="B", output="the end"),
)
PROOF = {"strategy": "bearer", "token": "of the receiver"}


class Receiver(HTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[Any] = []
        self.status = 200


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.heard.append((self.path, self.headers.get("authorization"), body))
        self.send_response(self.server.status)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def said():
    return []


@pytest.fixture
def serve(said):
    running = []

    def start(*, call_webhooks=True, **keys):
        scenario = Scenario(**{"inputs": (), "tasks": TASKS, "dialect": "deployed"} | keys)
        running.append(LocalCrewService(scenario, call_webhooks=call_webhooks, say=said.append).start())
        return running[-1]

    yield start
    for service in running:
        service.stop()


def kickoff(service, receiver, **more):
    address = f"http://127.0.0.1:{receiver.server_port}"
    named = {
        "taskWebhookUrl": f"{address}/task",
        "crewWebhookUrl": f"{address}/crew",
        "humanInputWebhookUrl": f"{address}/person",
        "webhooks": {"events": ["task_completed"], "url": f"{address}/events", "authentication": PROOF},
    }
    body = {"inputs": {"topic": "tides"}, "meta": {"a": 1}, **named, **more}
    headers = {"Authorization": f"Bearer {service.token}"}
    return requests.post(f"{service.url}/kickoff", json=body, headers=headers, timeout=60).json()["kickoff_id"]


def heard(receiver, path, times=1):
    return eventually(
        lambda: len(found := [each for each in receiver.heard if each[0] == path]) >= times and found, 60, 0.02
    )


@pytest.mark.parametrize("dialect", ["deployed", "documented"])
def test_each_is_called_for_what_it_is_for(serve, receiver, said, dialect):
    service = serve(dialect=dialect, usage={"total_tokens": 7})
    kickoff_id = kickoff(service, receiver)
    ids = {"kickoff_id": kickoff_id, "execution_id": kickoff_id, "meta": {"a": 1}}

    ((_, proof, asked),) = heard(receiver, "/person")
    assert asked.items() >= {**ids, "task": "first", "task_output": "about tides"}.items()
    assert receiver.heard == [("/person", proof, asked)]
    service.answer(kickoff_id, approved=True, question=asked["task_id"])
    tasks = heard(receiver, "/task", 2)
    ((_, _, end),) = heard(receiver, "/crew")
    events = heard(receiver, "/events", 2)

    assert {proof, *(each[1] for each in tasks)} == {None}
    assert tasks[0][2].items() >= {**ids, "name": "first", "agent": "A", "output": "about tides"}.items()
    assert end.items() >= {**ids, "result": "the end", "token_usage": {"total_tokens": 7}}.items()
    assert {each[1] for each in events} == {"Bearer of the receiver"}
    (event,) = events[0][2]["events"]
    assert event["type"] == "task_completed"
    assert (event["execution_id"], event["data"]["name"]) == (kickoff_id, "first")
    assert said == []


def test_a_failure_is_told_with_its_reason(serve, receiver):
    service = serve(tasks=(ScenarioTask(name="first", error="out of credit"),))
    kickoff(service, receiver)

    assert heard(receiver, "/crew")[0][2]["error"] == "out of credit"


def test_failed_call_is_logged_without_secrets(serve, receiver, said):
    receiver.status = 302
    service = serve(tasks=TASKS[1:])
    dead = "http://127.0.0.1:1/secret"
    kickoff_id = kickoff(service, receiver, taskWebhookUrl=dead, crewWebhookUrl=f"{dead}2", webhooks=None)

    eventually(lambda: len(said) == 2, 60, 0.02)
    assert {line.replace(kickoff_id, "ID") for line in said} == {
        "ID its webhook at 127.0.0.1 cannot be called: ClientConnectorError"
    }
    assert service.execution(kickoff_id).standing(service.now()).error is None


def test_a_redirect_is_not_followed(serve, receiver):
    receiver.status = 307
    service = serve(tasks=TASKS[1:])
    kickoff(service, receiver)

    heard(receiver, "/crew")
    assert "/elsewhere" not in [each[0] for each in receiver.heard]


def test_nobody_is_called_where_nobody_asked_for_it(serve, receiver):
    service = serve(call_webhooks=False, tasks=TASKS[1:])
    quiet = kickoff(service, receiver)
    loud = kickoff(serve(tasks=TASKS[1:]), receiver)

    heard(receiver, "/crew")
    assert {each[2].get("kickoff_id", loud) for each in receiver.heard} == {loud}
    assert "taskWebhookUrl" in service.execution(quiet).webhooks
