"""The command line in this process, and crews of a few words for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import requests

from airflow_provider_crew import cli
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.integration.clients import INPUTS, TOKEN

CONNECTION = "AIRFLOW_CONN_CREW_DEFAULT"
# Of the user, for Airflow's API.
OWN_TOKEN = "token-of-the-user-4711"

WRITING = ScenarioTask(name="writing_task", agent="Writer", seconds=0.0, output="A page.")
ENDLESS = WRITING.model_copy(update={"seconds": 3600.0})
FAILING = WRITING.model_copy(update={"error": "RateLimitError: out of credit"})
ASKING = WRITING.model_copy(update={"human_input": True})


class Ended(NamedTuple):
    """How a command has ended, and what it has printed."""

    code: int
    told: Any
    shown: str


class Command:
    """Run the command. Nothing that it prints may hold a token."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: str, crew: LocalCrewService | None = None) -> Ended:
        if crew:
            self._monkeypatch.setenv(CONNECTION, crew.connection_uri)
        code = cli.main(arguments)
        printed = self._capsys.readouterr()
        assert not [text for text in (TOKEN, OWN_TOKEN, "Traceback") if text in printed.out + printed.err]
        return Ended(code, json.loads(printed.out or "{}"), printed.err)


def kick_off(crew: LocalCrewService, **more: Any) -> str:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = requests.post(f"{crew.url}/kickoff", json={"inputs": INPUTS, **more}, headers=headers, timeout=60)
    return str(answer.json()["kickoff_id"])


def playing(dialect: str, *tasks: ScenarioTask, **more: Any) -> LocalCrewService:
    return LocalCrewService(Scenario(dialect=dialect, tasks=tasks, **more), token=TOKEN)


Crew = Callable[[str], LocalCrewService]


def crew(*tasks: ScenarioTask, spoil: Callable[[LocalCrewService], object] = lambda _: None, **more: Any) -> Crew:
    def make(dialect: str) -> LocalCrewService:
        service = playing(dialect, *tasks, **more)
        spoil(service)
        return service

    return make


def answers(status: int, on: Any) -> Callable[[LocalCrewService], object]:
    return lambda service: service.faults.answer(status, on=on, times=99)
