"""Responses of the local server in both dialects, as a plain HTTP client sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from airflow_provider_crew.local import Scenario, ScenarioTask

TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", seconds=2, output="about {topic}"),
    ScenarioTask(name="second", agent="B", seconds=3, output="for {audience}"),
)
FAILING = (TASKS[0], ScenarioTask(name="second", seconds=3, error="out of credit"))
ASKING = (TASKS[0], ScenarioTask(name="second", human_input=True))
META = {"airflow": {"try": 1}}
UNAUTHORIZED = "The bearer token is missing or invalid."


def test_responses_are_those_of_the_table(serve, clock, evaluated):
    def status(seconds: float, dialect: str = "deployed", **scenario: Any) -> Any:
        client = serve(Scenario(**{"dialect": dialect, "tasks": TASKS} | scenario))
        kickoff_id = client.kickoff(meta=META)
        clock.now += seconds
        found = client.status(kickoff_id)
        clock.now -= seconds
        known = {name: value for name, value in found.items() if value is not None}
        return json.loads(json.dumps(known).replace(kickoff_id, "ID"))

    def respond(request: str, body: Any = None, dialect: str = "deployed") -> tuple[int, Any]:
        client = serve(Scenario(dialect=dialect, tasks=TASKS))
        kickoff_id = client.kickoff()
        method, path = request.replace("ID", kickoff_id).split()
        response = client.get(path) if method == "GET" else client.post(path, body)
        assert len(client.service.kickoffs) == 1
        return response.status_code, json.loads(response.text.replace(kickoff_id, "ID"))

    evaluated("local_server.txt", status=status, respond=respond, **globals())


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
