"""What the README shows is true."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clients import INPUTS

from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.service import errors

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, containing: str) -> str:
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in text)
    return found


@pytest.fixture
def connected(service, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", service.connection_uri)
    return service


@pytest.mark.parametrize("form", ["'crew://", '"conn_type"'])
def test_a_connection_as_shown_is_read(monkeypatch, form):
    value = re.search(r"AIRFLOW_CONN_CREW_DEFAULT='(.*?)'", block("console", form), re.DOTALL)[1]
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", value)

    settings = read_connection(CrewHook.get_connection("crew_default")).settings

    assert (settings.address, settings.token) == ("https://my-crew.crewai.com", "TOKEN")


@pytest.mark.usefixtures("connected")
def test_the_first_example_runs():
    names: dict = {}

    exec(block("python", "hook.inputs().names"), names)  # noqa: S102

    assert names["completed"].output.startswith("Briefing: electric ferries")


def test_the_asynchronous_example_runs(connected):
    names = {"task": lambda **_: lambda function: function, "CrewHook": CrewHook}
    exec(block("python", "async def brief"), names)  # noqa: S102

    result = asyncio.run(names["brief"]("electric ferries"))

    assert result["kickoff_id"] == connected.kickoffs[0].kickoff_id


def test_the_scenario_is_one(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(block("toml", "[[tasks]]"))

    scenario = Scenario.load(path)

    assert [wanted.name for wanted in scenario.inputs] == ["topic", "tone"]
    assert scenario.tasks[0].output == '{"title": "All about {topic}"}'
    assert len(scenario.faults) == 1


def test_the_test_is_one(tmp_path):
    imports = "from airflow_provider_crew.hooks.crew import CrewHook\n\n"
    (tmp_path / "test_example.py").write_text(imports + block("python", "crew_service.faults"))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path],
        check=False,
        capture_output=True,
        text=True,
    )

    assert "1 passed" in done.stdout, done.stdout


def test_every_error_of_the_table_exists_and_none_is_missing():
    table = README.partition("| error (")[2].partition("All of them")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table.partition("\n")[2]))
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CrewError)
    }
    parents = {parent for kind in kinds for parent in kind.__bases__}
    assert named == {kind.__name__ for kind in kinds - parents}


@pytest.mark.usefixtures("connected")
def test_the_test_button_answers_as_shown():
    assert CrewHook().test_connection()[1] in README
    assert CrewHook().kickoff(INPUTS)
