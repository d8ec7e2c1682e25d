"""Responses of the local server in both dialects, as a plain HTTP client sees them."""

from __future__ import annotations

import json
import socket
import threading

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask

TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", seconds=2, output="about {topic}"),
    ScenarioTask(name="second", agent="B", seconds=3, output="for {audience}"),
)
FAILING = (TASKS[0], ScenarioTask(name="second", seconds=3, error="out of credit"))
ASKING = (TASKS[0], ScenarioTask(name="second", human_input=True))
META = {"airflow": {"try": 1}}

UNKNOWN = {"state": "NOT FOUND", "status": "Task not found or Invalid kickoff id", "result": None}
SINCE = {"started_at": "1970-01-01T00:16:40Z", "updated_at": "1970-01-01T00:16:42Z", "duration_seconds": 2.5}
PROGRESS = {"unit": "task", "completed": 1, "total": 2, "remaining": 1, "current": "second", "current_agent": "B"}
OF_A_FLOW = {"unit": "step", "total": None, "remaining": None, "current_agent": None}
ENDED = {"completed": 2, "remaining": 0, "current": None, "current_agent": None, "duration_seconds": 5.0}
FIRST = {"name": "first", "description": "look at tides", "output": "about tides", "meta": META}
SECOND = {"name": "second", "description": "", "output": "for sailors", "meta": META}
USAGE = {"total_tokens": 7}
RESULTS = [
    {"task_id": "first", "output": "about tides", "agent": "A", "execution_time": 2.0},
    {"task_id": "second", "output": "for sailors", "agent": "B", "execution_time": 3.0},
]

# The documented dialect.
RUNNING = {"status": "running", "current_task": "second", "progress": {"completed_tasks": 1, "total_tasks": 2}}
COMPLETED = {"status": "completed", "result": {"output": "for sailors", "tasks": RESULTS}, "execution_time": 5.0}
FAILED = {"status": "error", "error": "out of credit", "execution_time": 5.0}

# The deployed dialect.
RUNNING_CREW = {"state": "RUNNING", "progress": PROGRESS | SINCE, "last_executed_task": FIRST}
RUNNING_FLOW = {"state": "RUNNING", "progress": PROGRESS | SINCE | OF_A_FLOW, "last_executed_task": None}
COMPLETED_CREW = {
    "state": "SUCCESS",
    "result": "for sailors",
    "usage_metrics": USAGE,
    "progress": PROGRESS | SINCE | ENDED | {"updated_at": "1970-01-01T00:16:45Z"},
    "last_executed_task": SECOND,
}
FAILED_CREW = {"state": "FAILED", "status": "out of credit", "usage_metrics": USAGE, "last_executed_task": FIRST}


@pytest.mark.parametrize(
    ("seconds", "scenario", "body"),
    [
        (2.5, {}, RUNNING),
        (9, {}, COMPLETED),
        (9, {"tasks": FAILING}, FAILED),
        (2.5, {}, RUNNING_CREW),
        (2.5, {"kind": "flow"}, RUNNING_FLOW),
        (9, {"usage": USAGE}, COMPLETED_CREW),
        (9, {"usage": USAGE, "tasks": FAILING}, FAILED_CREW),
        (9, {"tasks": ASKING}, UNKNOWN),
    ],
)
def test_status_of_an_execution(serve, clock, seconds, scenario, body):
    dialect = "deployed" if "state" in body else "documented"
    client = serve(Scenario(**{"dialect": dialect, "tasks": TASKS} | scenario))
    kickoff_id = client.kickoff(meta=META)
    clock.now += seconds

    found = client.status(kickoff_id)

    if last := found.get("last_executed_task"):
        assert last.pop("kickoff_id") == kickoff_id
    assert found.items() >= body.items()


LISTED = {"inputs": ["topic", "audience"], "required_inputs": ["topic", "audience"]}
MISSING = {"missing_inputs": ["audience"]}
UNAUTHORIZED = "The bearer token is missing or invalid."
NO_EXECUTION = "No execution exists with the id other."


@pytest.mark.parametrize(
    ("dialect", "request_", "sent", "status", "body"),
    [
        ("documented", "GET /inputs", None, 200, LISTED),
        ("deployed", "GET /inputs", None, 200, LISTED),
        ("documented", "GET /status/other", None, 404, {"error": "Execution not found", "message": NO_EXECUTION}),
        ("deployed", "GET /status/other", None, 200, UNKNOWN),
        (
            "documented",
            "POST /kickoff",
            {"inputs": {"topic": "a"}},
            422,
            {"error": "Missing inputs", "details": MISSING},
        ),
        ("deployed", "POST /kickoff", {"inputs": {"topic": "a"}}, 422, {"detail": "Missing inputs: audience"}),
        ("documented", "POST /kickoff", b"{", 400, {"error": "Bad request"}),
        ("deployed", "POST /kickoff", [], 422, {}),
        ("documented", "POST /stop/other", None, 404, {"error": "Execution not found", "message": NO_EXECUTION}),
        ("deployed", "POST /stop/other", None, 404, {"detail": NO_EXECUTION}),
        ("documented", "POST /stop/ID", None, 200, {"status": "stopped", "kickoffId": "ID"}),
        ("deployed", "POST /stop/ID", None, 200, {"status": "stopped", "kickoffId": "ID"}),
    ],
)
def test_response_to_a_request(serve, dialect, request_, sent, status, body):
    client = serve(Scenario(dialect=dialect, tasks=TASKS))
    kickoff_id = client.kickoff()
    method, path = request_.replace("ID", kickoff_id).split()

    response = client.get(path) if method == "GET" else client.post(path, sent)

    assert response.status_code == status
    assert json.loads(response.text.replace(kickoff_id, "ID")).items() >= body.items()
    assert len(client.service.kickoffs) == 1


@pytest.mark.parametrize(
    ("dialect", "body"),
    [("documented", {"error": "Unauthorized", "message": UNAUTHORIZED}), ("deployed", {"detail": UNAUTHORIZED})],
)
@pytest.mark.parametrize("path", ["/kickoff", "/resume", "/local/"])
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}])
def test_stranger_is_answered_before_the_body(serve, dialect, body, path, header):
    service = serve(Scenario(dialect=dialect)).service
    with requests.Session() as session:
        prepared = session.prepare_request(requests.Request("POST", service.url + path, headers=header))
        prepared.headers["Content-Length"] = "1000000000000"
        response = session.send(prepared, timeout=60)

    assert (response.status_code, response.headers["Connection"]) == (401, "close")
    assert path == "/local/" or response.json() == body
    assert [(each.path, each.status, each.body) for each in service.requests] == [(path, 401, b"")]
    assert service.kickoffs == ()


def test_stopping_leaves_no_thread_and_no_listener():
    before = threading.enumerate()
    service = LocalCrewService().start()

    service.stop()
    service.stop()

    assert threading.enumerate() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", service.port), timeout=60)
