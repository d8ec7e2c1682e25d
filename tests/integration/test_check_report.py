"""``check --report``: it shows what a deployment responds like, and nothing that it responds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_crew import __version__
from airflow_provider_crew.cli import ANSWERED, FAILED, UNDECIDED
from airflow_provider_crew.client.api import Request, Response
from airflow_provider_crew.client.shapes import Shapes
from airflow_provider_crew.local import LocalCrewService, Scenario
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.commands import CONNECTION, ENDLESS, WRITING, playing

pytest_plugins = ["tests.integration.command_fixtures"]

# Every text, name and number of this deployment has one of these.
MARK, NUMBER = "zqMark", 918273645
# Names that a report shows.
FIELDS = {
    *("inputs", "required_inputs", "name", "type", "required", "description", "kickoff_id", "kickoffId", "id"),
    *("state", "status", "result", "result_json", "output", "tasks", "task_id", "agent", "execution_time"),
    *("error", "error_message", "message", "detail", "details", "title", "missing_inputs", "meta", "source"),
    *("progress", "unit", "completed", "total", "remaining", "current", "current_agent", "started_at"),
    *("updated_at", "duration_seconds", "completed_tasks", "total_tasks", "current_task", "flow_id"),
    *("last_event", "events", "events_count", "events_by_type", "last_step", "last_executed_task"),
    *("usage_metrics", "total_tokens", "prompt_tokens", "completion_tokens", "cached_prompt_tokens"),
    *("successful_requests", "triggered_by", "execution_origin"),
}
VALUE: Any = [MARK, NUMBER, None, [MARK], {MARK: MARK, "name": MARK, "status": {MARK: [NUMBER]}}]


@pytest.fixture
def report(monkeypatch, timing, command):
    """Run the check against a service. The report holds no value of the deployment."""
    timing(shortest_interval=0.05, waking_pause=0.01, waking_up=0.05, longest_back_off=0.01)

    def reported(crew: LocalCrewService, *arguments: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setenv(f"AIRFLOW_CONN_{MARK.upper()}", crew.connection_uri)
        code, printed, _ = command("check", MARK, "--report", "--yes", *arguments, as_json=False)
        for secret in (MARK, str(NUMBER), str(crew.port), *(each.kickoff_id for each in crew.kickoffs)):
            assert secret.lower() not in printed.lower()
        told = json.loads(printed)
        assert told.pop("versions")["provider"] == __version__
        assert told.pop("python")[0] == "3"
        return code, told

    return reported


GIVEN = ("--inputs", json.dumps(INPUTS | {MARK: MARK}))


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_shapes_and_codes_are_reported(report, dialect):
    with playing(dialect, WRITING) as service:
        code, told = report(service, "--start", *GIVEN)

    assert (code, told["dialect"], told["executions"], told["cost"]) == (ANSWERED, dialect, 1, "ended")
    assert "result" in told["proven"]
    inputs, unknown, *_, end = told["responses"]
    (kickoff,) = (each for each in told["responses"] if each["request"] == "POST /kickoff")
    assert inputs["body"]["inputs"] == inputs["body"]["required_inputs"] == {"array of": 2, "items": ["string"]}
    assert unknown["http_status"] == (404 if dialect == "documented" else 200)
    assert kickoff["body"] == {"kickoff_id": "string"}
    if dialect == "deployed":
        assert end["body"]["state"] == "success"
        assert end["body"]["usage_metrics"]["total_tokens"] == "integer"
    else:
        assert end["body"]["status"] == "completed"
        assert end["body"]["result"]["output"] == "string"
    assert end["times"] >= 1
    assert 0 <= end["seconds"][0] <= end["seconds"][1]


def test_stop_is_reported(report):
    with playing("deployed", ENDLESS) as service:
        _, told = report(service, "--stop", *GIVEN)

    assert "cancel" in told["proven"]
    assert "POST /stop/{kickoff_id}" in {each["request"] for each in told["responses"]}


ODD = [f"<html>{MARK} {NUMBER} {TOKEN}</html>", "", f'"{MARK}"', str(NUMBER), "[" * 5000, f'{{"{MARK}": 1', "NaN"]


@pytest.mark.parametrize("on", ["inputs", "kickoff", "status"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, dict.fromkeys(FIELDS, VALUE) | {MARK: VALUE, "state": "SUCCESS", "kickoff_id": f"{MARK}-{NUMBER}"}),
        *((status, {"message": MARK, MARK: VALUE}) for status in (400, 401, 422, 500)),
        *((200, body) for body in ODD),
    ],
)
def test_odd_body_shows_no_value(report, on, status, body):
    headers = {"Content-Type": f"text/{MARK}", "Server": MARK, "X": TOKEN}
    with playing("deployed", WRITING) as service:
        service.faults.answer(status, body=body, headers=headers, on=on, times=99)
        code, told = report(service, "--start", "--inputs", json.dumps({MARK: MARK, f"{MARK}2": NUMBER}))

    assert told["responses"]
    assert code in {ANSWERED, FAILED, UNDECIDED}


def test_unusable_connection_is_reported(command, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"crew://:{TOKEN}@{MARK}.invalid/http")
    code, printed, _ = command("check", "crew_default", "--report", as_json=False)

    told = json.loads(printed)
    assert (code, told["error"], told["responses"]) == (FAILED, "InvalidSettings", [])
    assert MARK not in printed


ANY_BODY = st.recursive(
    st.sampled_from([MARK, NUMBER, True, None, float(NUMBER), "SUCCESS"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([MARK, f"{MARK}2", *FIELDS]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(body=ANY_BODY)
@settings(max_examples=300, deadline=None)
def test_no_body_shows_a_value(body):
    shapes = Shapes()
    request = Request("GET", f"https://{MARK}.example", f"/status/{MARK}", kickoff_id=MARK)
    for _ in range(2):
        shapes.note(Response(request, 200, {MARK: MARK}, json.dumps(body).encode()), 0.25)

    (told,) = shapes.all()
    assert (told["times"], told["request"]) == (2, "GET /status/{kickoff_id}")
    assert not [each for each in (MARK, str(NUMBER)) if each in json.dumps(told)]


@pytest.mark.parametrize("depth", [10, 500, 900, 5_000])
def test_deep_body_loses_no_kickoff_id(report, depth):
    def nested(name: str) -> str:
        return f'{{"{name}":' * depth + "1" + "}" * depth

    with LocalCrewService(Scenario(dialect="deployed", tasks=(WRITING,)), token=TOKEN) as service:
        body = f'{{"kickoff_id": "{MARK}-1", "result": {nested("result")}, "tasks": {nested("output")}}}'
        service.faults.answer(200, body=body, on="kickoff")
        service.faults.answer(200, body={"state": "SUCCESS", "result": MARK}, on="status", times=99)
        code, told = report(service, "--start", *GIVEN)

    is_readable = depth < 900  # Python's own reader has a limit
    assert (code, told["executions"]) == (ANSWERED, 1) if is_readable else code in {ANSWERED, UNDECIDED}
