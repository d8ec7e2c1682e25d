"""``python -m airflow_provider_crew``: what it asks, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_crew import cli
from airflow_provider_crew.cli import UNDECIDED, USAGE, airflow_commands
from tests.integration.clients import TOKEN
from tests.integration.commands import ASKING, ENDLESS, FAILING, WRITING, Crew, answers, crew, kick_off, playing
from tests.supported import has

# A crew and a command. It gets the ID of an execution, unless it has one.
COMMANDS: dict[str, tuple[Crew, str]] = {
    "completed": (crew(WRITING), "status"),
    "running": (crew(ENDLESS), "status"),
    "failed": (crew(FAILING), "status"),
    "crew waits for a person": (crew(ASKING), "status"),
    "flow waits for a person": (crew(ASKING, kind="flow"), "status"),
    "name with a line break": (crew(ENDLESS.model_copy(update={"name": "a\nCost: none"})), "status"),
    "inputs": (crew(WRITING), "inputs"),
    "no such connection, cancel": (crew(WRITING), "cancel 4711 --yes --conn-id nobody"),
    "no such connection, adopt": (crew(WRITING), "adopt dag run task 4711 --conn-id nobody"),
    "no token, check": (crew(WRITING), "check tokenless"),
}
for name in ("inputs", "status 4711"):
    for status in (401, 403, 429):
        COMMANDS[f"{status}, {name}"] = crew(WRITING, spoil=answers(status, "all")), name
    COMMANDS[f"no crew, {name}"] = crew(WRITING), name
    COMMANDS[f"no such connection, {name}"] = crew(WRITING), f"{name} --conn-id nobody"
    COMMANDS[f"no token, {name}"] = crew(WRITING), f"{name} --conn-id tokenless"


def test_commands_ask_and_tell_as_in_the_table(command, printed, monkeypatch):
    """Each line has the exit code, the requests, and what is told."""
    monkeypatch.setenv("AIRFLOW_CONN_TOKENLESS", "crew://127.0.0.1:1/http")

    def line(name: str, dialect: str) -> str:
        make, asked = COMMANDS[name]
        with make(dialect) as service:
            arguments = asked.split() + ([kick_off(service)] if asked == "status" else [])
            service.requests.clear()
            if name.startswith("no crew"):
                service.faults.refuse()
            code, told, _ = command(*arguments, crew=service)
            requests = [str(each.operation) for each in service.requests]
        shows = ("connection", "state", "error", "cost", "inputs")
        facts = {key: told[key] for key in shows if key in told}
        facts |= {"output": told["result"]["output"]} if told.get("result") else {}
        shown = " ".join(f"{key}={value}" for key, value in facts.items())
        return f"{name}, {dialect}: {code} | {' '.join(requests)} | {shown}"

    dialects = ("documented", "deployed")
    printed("commands.txt", lambda _: [line(name, dialect) for name in COMMANDS for dialect in dialects])


@pytest.mark.parametrize(
    "arguments",
    [
        *((), ("kickoff",), ("status",), ("inputs", "--token=x")),
        *(("check", "crew", "--inputs", text) for text in ("[1]", "topic", '"x"')),
        ("forget", "dag", "run", "task", "--token", "x"),
    ],
)
def test_wrong_usage_sends_nothing(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)

    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (USAGE, "")
    assert printed.err.startswith("usage: python -m airflow_provider_crew")


def test_airflow_crew_answers_and_ends_alike(home):
    """The connection is one that only Airflow's database has."""

    def run(*program: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", *program, "status", kickoff_id, "--conn-id", "saved"],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"AIRFLOW_HOME": str(home)},
        )
        assert done.returncode == UNDECIDED
        assert TOKEN not in done.stdout + done.stderr
        return json.loads(done.stdout)

    with playing("deployed", ENDLESS) as crew:
        kickoff_id = kick_off(crew)
        with closing(sqlite3.connect(home / "airflow.db")) as database, database:
            database.execute(
                "INSERT INTO connection (conn_id, conn_type, host, port, schema, password, is_encrypted,"
                " is_extra_encrypted) VALUES ('saved', 'crew', '127.0.0.1', ?, 'http', ?, FALSE, FALSE)",
                (crew.port, TOKEN),
            )
        told = run("airflow_provider_crew")
        assert (told["connection"], told["state"]) == ("saved", "running")
        if has("[`airflow crew`]"):  # older Airflows take no commands from providers
            assert run("airflow", "crew") == told

    names = {"adopt", "cancel", "check", "forget", "inputs", "status"}
    assert {each.name for each in airflow_commands()[0].subcommands} == names
