"""Texts that no encoding or no terminal takes, on every page and in every answer of the local service."""

import io
import json
import sys

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.local.console import Console
from airflow_provider_crew.local.scenario import CrewInput

ODD = {"half a pair": "a\ud800b", "NUL": "a\0b", "line separator": "a\u2028b", "escape": "a\x1b[2Jb"}


@pytest.fixture(params=[*ODD.values()], ids=[*ODD])
def odd(request):
    return request.param


def tasks(*, error=None, waits=False):
    written = {"output": "{topic}", "description": "{topic}"}
    return (
        ScenarioTask(name="draft", human_input=waits, **written),
        ScenarioTask(name="polish", error=error, **written),
    )


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
@pytest.mark.parametrize("kind", ["crew", "flow"])
@pytest.mark.parametrize("waits", [False, True])
def test_odd_text_is_on_every_page_and_in_every_answer(serve, odd, dialect, kind, waits):
    inputs = (CrewInput(name="topic"), CrewInput(name="more"))
    scenario = Scenario(dialect=dialect, kind=kind, inputs=inputs, tasks=tasks(waits=waits))
    client = serve(scenario if waits else scenario.without_waiting())
    given = {"topic": odd, "more": [odd]}
    kickoff_id = client.kickoff(given, meta={"more": odd})
    page = client.get("/local/")
    shown = client.get(f"/executions/{kickoff_id}")
    alone = client.get(f"/executions/{kickoff_id}", headers={"Accept": "text/html"})
    status = client.get(f"/status/{kickoff_id}")

    assert [each.status_code for each in (page, alone, shown, status, client.get("/inputs"))] == [200] * 5
    assert page.content.decode("utf-8").count("topic") == 1
    assert alone.content.decode("utf-8")
    assert shown.json()["inputs"] == given
    if not waits:
        assert json.dumps(odd)[1:-1] in status.text


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_odd_reason_of_a_failure_is_told(serve, odd, dialect):
    # A scenario file cannot hold it, but a real crew can fail with it.
    scenario = Scenario(dialect=dialect, inputs=(), tasks=tasks(error="x")).without_waiting()
    failing = scenario.tasks[-1].model_copy(update={"error": odd})
    client = serve(scenario.model_copy(update={"tasks": (*scenario.tasks[:-1], failing)}))
    kickoff_id = client.kickoff({})

    assert client.get("/local/").status_code == 200
    assert odd in client.status(kickoff_id).values()


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_odd_line_is_printed(odd, encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))

    Console().event(f"begins {odd}")

    assert b"begins a" in written.getvalue()
