"""``python -m airflow_provider_crew``: what it asks, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from airflow_provider_crew.commands.exit_codes import ExitCode
from cryptography.fernet import Fernet

from airflow_provider_crew import __main__
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.service.errors import Cost
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.pages import block, table

CONNECTION = "AIRFLOW_CONN_CREW_DEFAULT"
COMMAND = [sys.executable, "-m", "airflow_provider_crew"]
OF_A_STATUS = {
    *("kickoff_id", "connection", "address", "state", "doing", "unit", "completed", "total"),
    *("current_task", "current_agent", "cost", "told", "details", "error", "result"),
}


@pytest.fixture(params=["documented", "deployed"])
def dialect(request) -> str:
    return request.param


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    # What the command sets for its own process.
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def ask(capsys, monkeypatch):
    """Run the command in this process against a service; nothing it prints may hold a token."""

    def asked(service: LocalCrewService, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv(CONNECTION, service.connection_uri)
        code = __main__.main(arguments)
        printed = capsys.readouterr()
        assert printed.err == ""
        assert TOKEN not in printed.out
        assert [line for line in printed.out.splitlines() if len(line) > 80 and "--json" not in arguments] == []
        return code, printed.out

    return asked


def kick_off(service: LocalCrewService) -> str:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = requests.post(f"{service.url}/kickoff", json={"inputs": INPUTS}, headers=headers, timeout=60)
    return str(answer.json()["kickoff_id"])


def playing(dialect: str, *tasks: ScenarioTask, **more: Any) -> LocalCrewService:
    return LocalCrewService(Scenario(dialect=dialect, tasks=tasks, **more), token=TOKEN)


WRITING = ScenarioTask(name="writing_task", agent="Writer", seconds=0.0, output="A page.")
ENDLESS = WRITING.model_copy(update={"seconds": 3600.0})
FAILING = WRITING.model_copy(update={"error": "RateLimitError: out of credit"})
ASKING = WRITING.model_copy(update={"human_input": True})


class TestStatus:
    @pytest.mark.parametrize(
        ("task", "code", "state", "cost"),
        [
            (WRITING, ExitCode.ANSWERED, "completed", Cost.ENDED),
            (ENDLESS, ExitCode.GOING_ON, "running", Cost.RUNNING),
            (FAILING, ExitCode.FAILED, "failed", Cost.ENDED),
        ],
        ids=["completed", "going on", "failed"],
    )
    def test_shows_state_and_cost(self, ask, dialect, task, code, state, money):
        with playing(dialect, task) as service:
            kickoff_id = kick_off(service)

            ended, text = ask(service, "status", kickoff_id)
            same, told = ask(service, "status", kickoff_id, "--json")

            assert len(service.kickoffs) == 1
        told = json.loads(told)
        assert (ended, same) == (code, code)
        assert told.keys() == OF_A_STATUS
        assert (told["kickoff_id"], told["state"], told["cost"]) == (kickoff_id, state, money)
        assert kickoff_id in text
        assert (told["result"] or {}).get("output") == ("A page." if state == "completed" else None)
        assert (told["error"] is None) == (state != "failed")

    def test_shows_progress(self, ask, dialect):
        with playing(dialect, WRITING, ENDLESS.model_copy(update={"name": "review_task"})) as service:
            kickoff_id = kick_off(service)

            told = json.loads(ask(service, "status", kickoff_id, "--json")[1])
            text = unwrapped(ask(service, "status", kickoff_id)[1])

        assert (told["unit"], told["completed"], told["total"]) == ("task", 1, 2)
        assert "review_task" in told["doing"]
        assert "review_task" in text

    def test_shows_tasks_and_token_usage(self, ask):
        with playing("deployed", WRITING, usage={"total_tokens": 4200}) as service:
            text = unwrapped(ask(service, "status", kick_off(service))[1])

        assert "writing_task" in text
        assert "4,200" in text
        assert "--json" in text
        assert "A page." not in text

    def test_shows_error_of_failed_crew(self, ask, dialect):
        with playing(dialect, FAILING) as service:
            kickoff_id = kick_off(service)

            text = unwrapped(ask(service, "status", kickoff_id)[1])
            told = json.loads(ask(service, "status", kickoff_id, "--json")[1])

        assert "RateLimitError: out of credit" in text
        assert told["error"] == "RateLimitError: out of credit"

    def test_deployed_crew_that_waits_for_human_input_is_unknown(self, ask):
        with playing("deployed", ASKING) as service:
            kickoff_id = kick_off(service)

            code, text = ask(service, "status", kickoff_id, "--json")

        told = json.loads(text)
        assert (code, told["state"], told["cost"]) == (ExitCode.UNKNOWN, "unknown", Cost.UNKNOWN)

    def test_flow_that_waits_for_human_input_is_paused(self, ask):
        with playing("deployed", ASKING, kind="flow") as service:
            kickoff_id = kick_off(service)

            code, text = ask(service, "status", kickoff_id, "--json")

        told = json.loads(text)
        assert (code, told["state"], told["cost"]) == (ExitCode.PAUSED, "paused", Cost.RUNNING)

    def test_id_of_no_execution_is_unknown(self, ask, dialect):
        with playing(dialect, WRITING) as service:
            assert ask(service, "status", "no-such-id")[0] == ExitCode.UNKNOWN

    def test_odd_name_forges_no_line(self, ask):
        odd = WRITING.model_copy(update={"name": "x\x1b[2J\nMoney: none", "agent": "y\r"})
        with playing("documented", odd) as service:
            text = ask(service, "status", kick_off(service))[1]

        assert "\x1b" not in text
        assert not re.search(r"^Cost: none", text, re.MULTILINE)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


class TestInputs:
    def test_are_listed(self, ask):
        with LocalCrewService(Scenario(inputs_shape="objects").without_waiting(), token=TOKEN) as service:
            code, text = ask(service, "inputs")
            told = json.loads(ask(service, "inputs", "--json")[1])

        assert code == ExitCode.ANSWERED
        assert "topic audience" in unwrapped(text)
        assert [each["name"] for each in told["inputs"]] == ["topic", "audience"]
        assert (told["connection"], told["address"]) == ("crew_default", service.url)


@pytest.mark.parametrize("command", [("inputs",), ("status", "some-id")], ids=["inputs", "status"])
class TestWithoutAnAnswer:
    @pytest.mark.parametrize(
        ("status", "code"),
        [
            (503, ExitCode.NO_ANSWER),
            (429, ExitCode.NO_ANSWER),
            (401, ExitCode.REFUSED),
            (403, ExitCode.REFUSED),
            (422, ExitCode.REFUSED),
        ],
    )
    def test_status_code_chooses_exit_code(self, ask, service, command, status, code):
        service.faults.answer(status, times=10)

        ended, text = ask(service, *command)
        told = json.loads(ask(service, *command, "--json")[1])

        assert ended == code
        assert str(status) in text
        assert told["error"]
        assert told.get("state") is None
        assert told["cost"] == (Cost.UNKNOWN if command[0] == "status" else Cost.NONE)
        assert len(service.requests) == 2

    def test_stopped_service_has_its_exit_code(self, ask, service, command):
        service.stop()

        assert ask(service, *command)[0] == ExitCode.NO_ANSWER

    def test_unusable_connection_has_its_exit_code(self, capsys, monkeypatch, command):
        monkeypatch.setenv(CONNECTION, "crew://127.0.0.1:1/http")

        code = __main__.main([*command, "--json"])

        told = json.loads(capsys.readouterr().out)
        assert code == ExitCode.CONNECTION
        assert told["connection"] == "crew_default"
        assert told["cost"] == (Cost.UNKNOWN if command[0] == "status" else Cost.NONE)


@pytest.mark.parametrize("arguments", [(), ("kickoff",), ("status",), ("status", ""), ("inputs", "--token=x")])
def test_wrong_usage_sends_nothing(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        __main__.main(arguments)

    assert ended.value.code == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("usage: python -m airflow_provider_crew")


@pytest.mark.parametrize("command", ["inputs", "status"])
def test_help_lists_every_exit_code(capsys, command):
    with pytest.raises(SystemExit) as ended:
        __main__.main([command, "--help"])

    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert [int(code) for code in re.findall(r"^  (\d)  .", text, re.MULTILINE)] == [*ExitCode]
    assert max(map(len, text.splitlines())) <= 80


# The table of connections, and what it refers to: others may refer to what belongs to a provider.
SAVE_A_CONNECTION = """
import sys
from airflow import settings
from airflow.models import Connection, import_all_models

import_all_models()
settings.configure_orm()
table = Connection.__table__
tables = [table, *(key.column.table for key in table.foreign_keys)]
Connection.metadata.create_all(settings.engine, tables=tables)
with settings.Session() as session:
    session.add(Connection(conn_id="saved", uri=sys.argv[1]))
    session.commit()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("home")
    given = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
    }
    return {name: value for name, value in os.environ.items() if name != "_AIRFLOW_PROCESS_CONTEXT"} | given


@pytest.fixture(scope="module")
def with_saved(home):
    """Provide a crew whose connection is saved in the database of that home."""
    with LocalCrewService(Scenario(dialect="deployed").without_waiting(), token=TOKEN) as service:
        save = [sys.executable, "-c", SAVE_A_CONNECTION, service.connection_uri]
        saved = subprocess.run(save, env=home, check=False, capture_output=True, text=True)
        assert saved.returncode == 0, saved.stderr
        yield service


class TestProcess:
    """A process of its own, in an Airflow home that has a database."""

    def run(self, home: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *arguments], env=home | {"COLUMNS": "80"}, check=False, capture_output=True, text=True
        )
        assert TOKEN not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def test_reads_a_connection_from_the_environment(self, home, with_saved):
        done = self.run(
            home | {"AIRFLOW_CONN_OTHER": with_saved.connection_uri}, "inputs", "--conn-id", "other", "--json"
        )

        assert done.returncode == 0
        assert json.loads(done.stdout)["address"] == with_saved.url

    def test_reads_a_connection_from_the_database(self, home, with_saved):
        done = self.run(home, "status", "--conn-id", "saved", "--json", kick_off(with_saved))

        assert done.returncode == 0
        assert json.loads(done.stdout)["state"] == "completed"

    @pytest.mark.usefixtures("with_saved")
    def test_missing_connection_is_named(self, home):
        done = self.run(home, "inputs", "--conn-id", "nobody")

        assert done.returncode == ExitCode.CONNECTION
        assert "AIRFLOW_CONN_NOBODY" in done.stdout

    @pytest.mark.usefixtures("with_saved")
    @pytest.mark.parametrize(
        "elsewhere",
        [
            {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nowhere/at/all.db"},
            {"AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode()},
        ],
        ids=["no database", "another key"],
    )
    def test_unreadable_connection_is_named(self, home, elsewhere):
        done = self.run(home | elsewhere, "inputs", "--conn-id", "saved")

        assert done.returncode == ExitCode.CONNECTION
        assert "saved" in done.stdout
        assert "MetastoreBackend" in done.stdout


def test_page_lists_every_exit_code():
    assert [int(code) for code, _ in table("docs/monitoring.md", "From a terminal")] == [*ExitCode]


def test_commands_of_page_are_answered(ask, service):
    shown = block("docs/monitoring.md", "console", "airflow_provider_crew status")
    kickoff_id = kick_off(service)

    commands = [line.partition("#")[0].split()[3:] for line in shown.splitlines()]

    assert len(commands) == 3
    for command in commands:
        assert ask(service, *(kickoff_id if each.startswith("57a13a6e") else each for each in command))[0] == 0
