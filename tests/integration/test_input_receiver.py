"""The receiver of example_crews that docs/webhooks.md names, called over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.airflow_runs import eventually
from tests.integration.receivers import chat, receiver

SECRET = "of-the-receiver"
META = {"airflow": {"dag_id": "report", "run_id": "manual__1", "task_id": "crew"}}
ASKING = Scenario(
    inputs=(), tasks=(ScenarioTask(name="notes", output="Notes", human_input=True),), dialect="deployed"
)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Return what the chat is told, and the address of the receiver."""
    with (
        chat() as (told, chat_url),
        receiver(AIRFLOW_URL="https://airflow.example", CHAT_URL=chat_url, WEBHOOK_SECRET=SECRET) as url,
    ):
        yield told, url


@pytest.fixture
def told(served: tuple[list[dict[str, Any]], str]) -> list[dict[str, Any]]:
    served[0].clear()
    return served[0]


@pytest.mark.parametrize("connection", [{"password": SECRET}, {"password": "another-one"}, None])
def test_receiver_forwards_the_call_of_a_crew_with_its_secret(
    served: Any, told: list[dict[str, Any]], monkeypatch: Any, connection: dict[str, str] | None
) -> None:
    lines: list[str] = []
    if connection:
        monkeypatch.setenv("AIRFLOW_CONN_CREW_WEBHOOK", json.dumps({"conn_type": "generic", **connection}))
    with LocalCrewService(ASKING, call_webhooks=True, log=lines.append) as crew:
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", crew.connection_uri)

        hook = CrewHook(webhook_conn_id="crew_webhook" if connection else None)
        kickoff_id = hook.kickoff({}, meta=META, human_input_webhook_url=served[1])

        eventually(lambda: told or lines, pause=0.02)
    page = "https://airflow.example/dags/report/runs/manual__1/tasks/crew"
    if connection == {"password": SECRET}:
        text = f"Execution {kickoff_id} waits for human input: {page}\nNotes"
        assert (told, lines) == ([{"text": text}], [])
    else:
        assert (told, lines) == ([], [f"{kickoff_id} webhook at 127.0.0.1 returns 401"])
