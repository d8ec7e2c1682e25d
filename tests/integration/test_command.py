"""``python -m airflow_provider_crew``: what it asks, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_provider_crew import cli
from airflow_provider_crew.cli import ANSWERED, FAILED, UNDECIDED, USAGE, airflow_commands
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.integration.clients import INPUTS, TOKEN
from tests.supported import has

CONNECTION = "AIRFLOW_CONN_CREW_DEFAULT"


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
        code = cli.main(arguments)
        printed = capsys.readouterr()
        assert printed.err == ""
        assert TOKEN not in printed.out
        return code, printed.out

    return asked


def kick_off(service: LocalCrewService, **more: Any) -> str:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    sent = {"inputs": INPUTS, **more}
    answer = requests.post(f"{service.url}/kickoff", json=sent, headers=headers, timeout=60)
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
            (WRITING, ANSWERED, "completed", Cost.ENDED),
            (ENDLESS, UNDECIDED, "running", Cost.RUNNING),
            (FAILING, FAILED, "failed", Cost.ENDED),
        ],
        ids=["completed", "running", "failed"],
    )
    def test_shows_state_and_cost(self, ask, dialect, task, code, state, cost):
        with playing(dialect, task) as service:
            kickoff_id = kick_off(service)

            ended, text = ask(service, "status", kickoff_id)
            same, told = ask(service, "status", kickoff_id, "--json")

            assert len(service.kickoffs) == 1
        told = json.loads(told)
        assert (ended, same) == (code, code)
        assert (told["kickoff_id"], told["state"], told["cost"]) == (kickoff_id, state, cost)
        assert kickoff_id in text
        assert told.get("result", {}).get("output") == ("A page." if state == "completed" else None)
        assert ("out of credit" in text) == (state == "failed")

    @pytest.mark.parametrize(("kind", "state"), [("flow", "paused"), ("crew", "unknown")])
    def test_human_input_is_undecided(self, ask, kind, state):
        with playing("deployed", ASKING, kind=kind) as service:
            code, told = ask(service, "status", kick_off(service), "--json")
        assert (code, json.loads(told)["state"]) == (UNDECIDED, state)

    def test_odd_name_forges_no_line(self, ask):
        odd = ENDLESS.model_copy(update={"name": "a\nCost: none"})
        with playing("documented", odd) as service:
            text = ask(service, "status", kick_off(service))[1]
        assert [line for line in text.splitlines() if line.startswith("Cost:")] == [f"Cost: {Cost.RUNNING}"]


def test_inputs_are_listed(ask, dialect):
    with playing(dialect, WRITING, inputs=[{"name": "topic"}]) as service:
        code, told = ask(service, "inputs", "--json")
    assert (code, [each["name"] for each in json.loads(told)["inputs"]]) == (ANSWERED, ["topic"])


@pytest.mark.parametrize("command", [("inputs",), ("status", "4711")], ids=["inputs", "status"])
class TestWithoutAnAnswer:
    @pytest.mark.parametrize(("status", "code"), [(401, FAILED), (403, FAILED), (429, UNDECIDED)])
    def test_status_code_chooses_exit_code(self, ask, command, status, code):
        with playing("documented", WRITING) as service:
            service.faults.answer(status, on=command[0], times=2)
            ended, told = ask(service, *command, "--json")

            assert len(service.requests) == 1
        assert ended == code
        assert json.loads(told)["cost"] == (Cost.UNKNOWN if command[0] == "status" else Cost.NONE)

    def test_stopped_service_is_undecided(self, ask, command):
        service = playing("documented", WRITING)
        service.start()
        service.stop()

        assert ask(service, *command)[0] == UNDECIDED

    def test_unusable_connection_fails(self, capsys, monkeypatch, command):
        monkeypatch.setenv(CONNECTION, "crew://127.0.0.1:1/http")

        code = cli.main([*command, "--json"])

        told = json.loads(capsys.readouterr().out)
        assert (code, told["connection"], told["error"]) == (FAILED, "crew_default", "InvalidSettings")


def test_dags_are_copied_once(tmp_path, capsys):
    names = {"crew_budget.py", "crew_wait_for_execution.py"}
    for _ in range(2):
        assert cli.main(["dags", "--into", str(tmp_path)]) == ANSWERED
    assert {path.name for path in tmp_path.iterdir()} == names
    assert {Path(line.removeprefix("Copied ")).name for line in capsys.readouterr().out.splitlines()} == names


def test_dags_replace_no_other_file(tmp_path):
    other = tmp_path / "crew_budget.py"
    other.write_text("# mine")

    assert cli.main(["dags", "--into", str(tmp_path)]) == FAILED
    assert cli.main(["dags", "--into", str(tmp_path / "missing")]) == FAILED
    assert other.read_text() == "# mine"


@pytest.mark.parametrize(
    "arguments", [(), ("kickoff",), ("status",), ("status", ""), ("inputs", "--token=x"), ("dags",)]
)
def test_wrong_usage_sends_nothing(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)

    assert ended.value.code == USAGE
    assert capsys.readouterr().err.startswith("usage: python -m airflow_provider_crew")


@pytest.fixture
def saved(home, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program with a connection that only Airflow's database has."""
    monkeypatch.delenv("_AIRFLOW_PROCESS_CONTEXT")

    def run(service: LocalCrewService, *program: str) -> subprocess.CompletedProcess[str]:
        with closing(sqlite3.connect(home / "airflow.db")) as database, database:
            database.execute(
                "INSERT INTO connection (conn_id, conn_type, host, port, schema, password, is_encrypted,"
                " is_extra_encrypted) VALUES ('saved', 'crew', '127.0.0.1', ?, 'http', ?, FALSE, FALSE)",
                (service.port, TOKEN),
            )
        return subprocess.run(
            [sys.executable, "-m", *program, "--conn-id", "saved", "--json"],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"AIRFLOW_HOME": str(home)},
        )

    return run


def test_connection_is_read_from_the_database(saved):
    with playing("deployed", WRITING) as service:
        done = saved(service, "airflow_provider_crew", "inputs")

    assert (done.returncode, len(service.requests)) == (ANSWERED, 1)
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.skipif(not has("[`airflow crew`]"), reason="this Airflow takes no commands from providers")
class TestAirflowCrew:
    """The same commands in Airflow's own command line."""

    def test_answers_and_ends_alike(self, saved, ask):
        with playing("deployed", ENDLESS) as service:
            kickoff_id = kick_off(service)
            done = saved(service, "airflow", "crew", "status", kickoff_id)
            code, told = ask(service, "status", kickoff_id, "--json")

        assert done.returncode == code == UNDECIDED
        assert json.loads(done.stdout) == json.loads(told) | {"connection": "saved"}

    def test_has_every_command(self):
        (group,) = airflow_commands()

        names = {"adopt", "cancel", "check", "dags", "forget", "inputs", "status"}
        assert {command.name for command in group.subcommands} == names


@pytest.mark.parametrize(
    ("command", "cost"),
    [
        (("inputs",), Cost.NONE),
        (("status", "4711"), Cost.UNKNOWN),
        (("cancel", "4711", "--yes"), Cost.UNKNOWN),
        (("adopt", "dag", "run", "task", "4711"), Cost.UNKNOWN),
    ],
    ids=["inputs", "status", "cancel", "adopt"],
)
def test_missing_connection_proves_nothing(capsys, command, cost):
    assert cli.main([*command, "--conn-id", "nobody", "--json"]) == UNDECIDED
    told = json.loads(capsys.readouterr().out)
    assert (told["connection"], told["cost"]) == ("nobody", cost)
