"""``python -m airflow_provider_crew``: what it asks, what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_crew import cli
from airflow_provider_crew.cli import INTERRUPTED, UNDECIDED, USAGE
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.record import ReceivedRequest
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.commands import ASKING, ENDLESS, FAILING, WRITING, Crew, answers, crew, kick_off, playing

GIVEN = ("--inputs", json.dumps(INPUTS))
SLOWLY = WRITING.model_copy(update={"seconds": 0.3})


# A crew, a command, and what the user types. `status` and `cancel` get the ID of an execution.
COMMANDS: dict[str, tuple[Crew, str, str | None]] = {
    "completed": (crew(WRITING), "status", None),
    "running": (crew(ENDLESS), "status", None),
    "failed": (crew(FAILING), "status", None),
    "crew waits for a person": (crew(ASKING), "status", None),
    "flow waits for a person": (crew(ASKING, kind="flow"), "status", None),
    "name with a line break": (crew(ENDLESS.model_copy(update={"name": "a\nCost: none"})), "status", None),
    "inputs": (crew(WRITING), "inputs", None),
    "yes is typed": (crew(ENDLESS), "cancel", "y\n"),
    "no is typed": (crew(ENDLESS), "cancel", "n\n"),
    "nothing is typed": (crew(ENDLESS), "cancel", ""),
    "it cannot be stopped": (crew(ENDLESS, spoil=answers(404, "stop")), "cancel", "y\n"),
    "it is unknown whether it stops": (crew(ENDLESS, spoil=answers(500, "status")), "cancel", "y\n"),
    "no such connection, cancel": (crew(WRITING), "cancel 4711 --yes --conn-id nobody", None),
    "no such connection, adopt": (crew(WRITING), "adopt dag run task 4711 --conn-id nobody", None),
    "no token, check": (crew(WRITING), "check tokenless --yes", None),
}
for name in ("inputs", "status 4711"):
    for status in (401, 403, 429):
        COMMANDS[f"{status}, {name}"] = crew(WRITING, spoil=answers(status, "all")), name, None
    COMMANDS[f"no crew, {name}"] = crew(WRITING), name, None
    COMMANDS[f"no such connection, {name}"] = crew(WRITING), f"{name} --conn-id nobody", None
    COMMANDS[f"no token, {name}"] = crew(WRITING), f"{name} --conn-id tokenless", None
CHECKS: dict[str, tuple[Crew, str, str | None]] = {
    "it only reads": (crew(WRITING), "", None),
    "required inputs are unknown": (crew(WRITING, required_inputs=False), "", None),
    "a flow requires none": (crew(WRITING, kind="flow"), "", None),
    "inputs are not listed": (crew(SLOWLY, spoil=answers(403, "inputs")), "", None),
    "inputs are not listed, but it starts": (crew(SLOWLY, spoil=answers(403, "inputs")), "--start", None),
    "nothing is typed, check": (crew(WRITING), "--start", ""),
    "no is typed, check": (crew(WRITING), "--start", "n\n"),
    "it starts": (crew(WRITING.model_copy(update={"name": "first"}), SLOWLY), "--start", None),
    "execution fails": (crew(FAILING), "--start", None),
    "an input is missing": (crew(WRITING, inputs=[{"name": "port"}]), "--start", None),
}
for status, on in [(401, "inputs"), (403, "status"), (422, "kickoff"), (429, "kickoff"), (504, "kickoff")]:
    CHECKS[f"{status} for {on}"] = crew(WRITING, spoil=answers(status, on)), "--start", None
COMMANDS |= {
    name: (make, f"check crew_default {more}{' --yes' * (typed is None)}", typed)
    for name, (make, more, typed) in CHECKS.items()
}


@pytest.fixture
def check(command, timing) -> Callable[..., tuple[int, dict[str, Any]]]:
    timing(shortest_interval=0.02)
    return lambda crew, *arguments: command("check", "crew_default", *arguments, crew=crew)[:2]


def test_commands_ask_and_tell_as_in_the_table(command, printed, monkeypatch, timing):
    """Each line has the exit code, the requests besides polls of a check, and what is told."""
    monkeypatch.setenv("AIRFLOW_CONN_TOKENLESS", "crew://127.0.0.1:1/http")
    timing(shortest_interval=0.02, cancel_pause=0.0)

    def line(name: str, dialect: str) -> str:
        make, asked, typed = COMMANDS[name]
        checks = asked.startswith("check")
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with make(dialect) as service:
            arguments = asked.split() + ([kick_off(service)] if asked in {"status", "cancel"} else [])
            service.requests.clear()
            if name.startswith("no crew"):
                service.faults.refuse()
            code, told, _ = command(*arguments, *(GIVEN if checks else ()), crew=service)
            requests = [str(each.operation) for each in service.requests]
            ids = [kickoff.kickoff_id for kickoff in service.kickoffs]
        assert not checks or told.pop("kickoff_id", None) == next(iter(ids), None)
        facts = {
            key: told[key]
            for key in ("connection", "state", "error", "cost", "token", "inputs", "cancel")
            if key in told
        }
        facts |= {key: told["result"][key] for key in ("output", "usage") if told.get("result")}
        shown = " ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        others = " ".join(key for key in told if key not in {*facts, "address", "result"})
        polled = [each for each in requests if each != "status" or not checks]
        return f"{code} | {' '.join(polled)} | {shown} | {others}".rstrip(" |")

    def lines(name: str) -> list[str]:
        told = {dialect: line(name, dialect) for dialect in ("documented", "deployed")}
        return [f"{name}{f', {dialect}' * (len({*told.values()}) > 1)}: {text}" for dialect, text in told.items()]

    # Dialects that differ have a line each.
    printed("commands.txt", lambda _: [*dict.fromkeys(text for name in COMMANDS for text in lines(name))])


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


def test_command_reads_connection_of_airflows_database(home):
    with playing("deployed", ENDLESS) as crew:
        kickoff_id = kick_off(crew)
        with closing(sqlite3.connect(home / "airflow.db")) as database, database:
            database.execute(
                "INSERT INTO connection (conn_id, conn_type, host, port, schema, password, is_encrypted,"
                " is_extra_encrypted) VALUES ('saved', 'crew', '127.0.0.1', ?, 'http', ?, FALSE, FALSE)",
                (crew.port, TOKEN),
            )
        done = subprocess.run(
            [sys.executable, "-m", "airflow_provider_crew", "status", kickoff_id, "--conn-id", "saved"],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"AIRFLOW_HOME": str(home)},
        )

    told = json.loads(done.stdout)
    assert (done.returncode, told["connection"], told["state"]) == (UNDECIDED, "saved", "running")
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize("moment", ["kickoff", "wait"])
def test_ctrl_c_prints_the_kickoff_id(check, moment):
    held = HeldAnswer(on="kickoff" if moment == "kickoff" else "status")

    def hold(request: ReceivedRequest) -> None:
        if request.operation == ("status" if moment == "kickoff" else "kickoff"):
            service.faults.add(held)

    def press_ctrl_c() -> None:
        eventually(lambda: held.is_held, pause=0.05)
        os.kill(os.getpid(), signal.SIGINT)
        held.release()

    scenario = Scenario(dialect="deployed", tasks=(ENDLESS,))
    with LocalCrewService(scenario, token=TOKEN, on_request=hold) as service:
        presses = threading.Thread(target=press_ctrl_c)
        presses.start()
        code, told = check(service, "--start", "--yes", *GIVEN)
        presses.join()

        (kickoff,) = service.kickoffs
    assert (code, told["kickoff_id"], told["cost"]) == (INTERRUPTED, kickoff.kickoff_id, Cost.RUNNING)
