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

import pytest

from airflow_provider_crew import cli
from airflow_provider_crew.cli import ANSWERED, FAILED, UNDECIDED, USAGE, airflow_commands
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService
from tests.integration.clients import TOKEN
from tests.integration.commands import ASKING, CONNECTION, ENDLESS, FAILING, WRITING, kick_off, playing
from tests.supported import has

pytest_plugins = ["tests.integration.command_fixtures"]


@pytest.mark.parametrize(
    ("task", "code", "state", "cost"),
    [
        (WRITING, ANSWERED, "completed", Cost.ENDED),
        (ENDLESS, UNDECIDED, "running", Cost.RUNNING),
        (FAILING, FAILED, "failed", Cost.ENDED),
    ],
    ids=["completed", "running", "failed"],
)
def test_status_shows_state_and_cost(command, dialect, task, code, state, cost):
    with playing(dialect, task) as crew:
        kickoff_id = kick_off(crew)
        ended, text, _ = command("status", kickoff_id, crew=crew, as_json=False)
        same, told, _ = command("status", kickoff_id)

        assert len(crew.kickoffs) == 1
    assert (ended, same) == (code, code)
    assert (told["kickoff_id"], told["state"], told["cost"]) == (kickoff_id, state, cost)
    assert kickoff_id in text
    assert told.get("result", {}).get("output") == ("A page." if state == "completed" else None)
    assert ("out of credit" in text) == (state == "failed")


@pytest.mark.parametrize(("kind", "state"), [("flow", "paused"), ("crew", "unknown")])
def test_status_of_human_input_is_undecided(command, kind, state):
    with playing("deployed", ASKING, kind=kind) as crew:
        code, told, _ = command("status", kick_off(crew), crew=crew)
    assert (code, told["state"]) == (UNDECIDED, state)


def test_odd_name_forges_no_line(command):
    with playing("documented", ENDLESS.model_copy(update={"name": "a\nCost: none"})) as crew:
        text = command("status", kick_off(crew), crew=crew, as_json=False).told
    assert [line for line in text.splitlines() if line.startswith("Cost:")] == [f"Cost: {Cost.RUNNING}"]


def test_inputs_are_listed(command, dialect):
    with playing(dialect, WRITING, inputs=[{"name": "topic"}]) as crew:
        code, told, _ = command("inputs", crew=crew)
    assert (code, [each["name"] for each in told["inputs"]]) == (ANSWERED, ["topic"])


each_question = pytest.mark.parametrize("asked", [("inputs",), ("status", "4711")], ids=["inputs", "status"])


@each_question
@pytest.mark.parametrize(("status", "code"), [(401, FAILED), (403, FAILED), (429, UNDECIDED), (None, UNDECIDED)])
def test_missing_answer_chooses_the_exit_code(command, asked, status, code):
    with playing("documented", WRITING) as crew:
        if status:
            crew.faults.answer(status, on=asked[0], times=2)
        else:
            crew.faults.refuse()
        ended, told, _ = command(*asked, crew=crew)

        assert len(crew.requests) == bool(status)
    assert (ended, told["cost"]) == (code, Cost.UNKNOWN if asked[0] == "status" else Cost.NONE)


@each_question
def test_unusable_connection_fails(command, monkeypatch, asked):
    monkeypatch.setenv(CONNECTION, "crew://127.0.0.1:1/http")

    code, told, _ = command(*asked)

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
    "arguments",
    [
        *((), ("kickoff",), ("status",), ("status", ""), ("inputs", "--token=x"), ("dags",)),
        *(("check", "crew", "--inputs", text) for text in ("[1]", "topic", '"x"')),
        *(
            ("forget", "dag", "run", "task", *more)
            for more in [("--failed", "--map-index", "1"), ("--token", "x")]
        ),
    ],
)
def test_wrong_usage_sends_nothing(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)

    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (USAGE, "")
    assert printed.err.startswith("usage: python -m airflow_provider_crew")


@pytest.fixture
def saved(
    home,
    monkeypatch,
    command,  # noqa: ARG001 - it sets what this deletes
) -> Callable[..., subprocess.CompletedProcess[str]]:
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

    def test_answers_and_ends_alike(self, saved, command):
        with playing("deployed", ENDLESS) as crew:
            kickoff_id = kick_off(crew)
            done = saved(crew, "airflow", "crew", "status", kickoff_id)
            code, told, _ = command("status", kickoff_id, crew=crew)

        assert done.returncode == code == UNDECIDED
        assert json.loads(done.stdout) == told | {"connection": "saved"}

    def test_has_every_command(self):
        (group,) = airflow_commands()

        names = {"adopt", "cancel", "check", "dags", "forget", "inputs", "status"}
        assert {each.name for each in group.subcommands} == names


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        (("inputs",), Cost.NONE),
        (("status", "4711"), Cost.UNKNOWN),
        (("cancel", "4711", "--yes"), Cost.UNKNOWN),
        (("adopt", "dag", "run", "task", "4711"), Cost.UNKNOWN),
    ],
    ids=["inputs", "status", "cancel", "adopt"],
)
def test_missing_connection_proves_nothing(command, asked, cost):
    code, told, _ = command(*asked, "--conn-id", "nobody")
    assert (code, told["connection"], told["cost"]) == (UNDECIDED, "nobody", cost)
