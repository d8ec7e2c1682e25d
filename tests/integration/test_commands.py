"""``python -m airflow_provider_crew``: what it asks and prints, how it ends, and the records that it changes."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest

from airflow_provider_crew import cli
from airflow_provider_crew.batch.facts import Fact, fact
from airflow_provider_crew.batch.fold import Row, Why, decision_of, fold
from airflow_provider_crew.cli import ANSWERED, FAILED, INTERRUPTED, UNDECIDED, USAGE
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.task.decide import KickoffRecord, decide
from airflow_provider_crew.task.record import as_stored, read_record
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.integration import commands
from tests.integration.airflow_api import TASK, AirflowApi, serving
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.commands import (
    ENDLESS,
    OWN_TOKEN,
    WRITING,
    Crew,
    kick_off,
    playing,
)

GIVEN = ("--inputs", json.dumps(INPUTS))
SLOWLY = WRITING.model_copy(update={"seconds": 0.3})


@pytest.fixture
def check(command, timing) -> Callable[..., tuple[int, dict[str, Any]]]:
    timing(shortest_interval=0.02)
    return lambda crew, *arguments: command("check", "crew_default", *arguments, crew=crew)[:2]


def test_commands_ask_and_tell_as_in_the_table(command, evaluated, monkeypatch, timing):
    monkeypatch.setenv("AIRFLOW_CONN_TOKENLESS", "crew://127.0.0.1:1/http")
    timing(shortest_interval=0.02, cancel_pause=0.0)

    def line(dialect: str, asked: str, make: Crew, typed: str | None, *, is_away: bool) -> str:
        checks = asked.startswith("check")
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with make(dialect) as service:
            arguments = asked.split() + ([kick_off(service)] if asked in {"status", "cancel"} else [])
            service.requests.clear()
            if is_away:
                service.faults.refuse()
            code, told, _ = command(*arguments, *(GIVEN if checks else ()), crew=service)
            requests = [str(each.operation) for each in service.requests]
            ids = [kickoff.kickoff_id for kickoff in service.kickoffs]
        assert not checks or told.pop("kickoff_id", None) == next(iter(ids), None)
        names = ("connection", "state", "error", "cost", "token", "inputs", "cancel")
        facts = {key: told[key] for key in names if key in told}
        facts |= {key: told["result"][key] for key in ("output", "usage") if told.get("result")}
        shown = " ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        others = " ".join(key for key in told if key not in {*facts, "address", "result"})
        polled = [each for each in requests if each != "status" or not checks]
        return f"{code} | {' '.join(polled)} | {shown} | {others}".rstrip(" |")

    def ask(asked: str, make: Crew, typed: str | None = None, *, is_away: bool = False) -> Iterator[str]:
        told = {name: line(name, asked, make, typed, is_away=is_away) for name in ("documented", "deployed")}
        is_one = len({*told.values()}) == 1
        yield from ([told["deployed"]] if is_one else [f"{dialect}: {text}" for dialect, text in told.items()])

    evaluated("commands.txt", ask=ask, **globals() | vars(commands))


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


RUN_ID = "manual__2026-11-26T10:00:00+00:00"
NAMES = ("crew_report", RUN_ID, "report")
STORE = f"/api/v2/dags/crew_report/dagRuns/{RUN_ID}/taskInstances/report/state-store"
# Sent, reported, and never answered.
LOST = KickoffRecord(0, 1.0, reported=True, address="https://crew.example", fingerprint="f" * 64, try_number=1)


@pytest.fixture
def airflow():
    with serving("3.4.0b2") as api:
        yield api


@pytest.fixture
def run(command, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CLI_TOKEN", f"{OWN_TOKEN}\n")
    return lambda name, api, *more, crew=None: command(name, *NAMES, "--url", api.url, *more, crew=crew)


def store(api: AirflowApi, record: KickoffRecord, map_index: int = -1) -> None:
    """Store a record as a task does."""
    api.stored[f"{STORE}/crew_kickoff?map_index={map_index}"] = {"value": as_stored(record)}


def sent(key: str, fingerprint: str, number: int, at: float, kickoff_id: str = "") -> list[Fact]:
    """Return what a batch stores about a row of a group."""
    row = Row(-1, key, fingerprint)
    named = [fact(row, number, "named", kickoff_id=kickoff_id)] if kickoff_id else []
    return [fact(row, number, "sent", at=at, address="", call=""), *named]


SLOTS: list[list[Fact]] = [
    [*sent("a", "f" * 64, 1, 1.0), *sent("b", "e" * 64, 1, 1.0, "of-b"), *sent("c", "0", 2, 1.0)],
    [*sent("a", "f" * 64, 2, 2.0), *sent("c", "d" * 64, 1, 2.0)],
]
STORES: dict[str, dict[str, Any]] = {
    "batch": {"": {"version": 1, "address": "", "slots": 2, "max_tries": 0}}
    | {f"_{slot}": {"plan": "", "numbers": "", "facts": facts} for slot, facts in enumerate(SLOTS)},
    "agent": {"": ["crew_default"]},
}
PREFIXES = {"batch": "crew_batch", "agent": "crew_calls"}


def store_of_kind(api: AirflowApi, kind: str) -> None:
    """Store what a task of another kind does."""
    for key, value in STORES[kind].items():
        api.stored[f"{STORE}/{PREFIXES[kind]}{key}?map_index=-1"] = {"value": value}
    if kind == "agent":
        api.stored[f"{STORE}/crew_kickoff_0?map_index=-1"] = {"value": as_stored(LOST)}


def rows_in(api: AirflowApi) -> dict[str, Row]:
    """Read the rows of a batch as the next attempt does, without result files."""
    slots = [api.stored[f"{STORE}/crew_batch_{slot}?map_index=-1"]["value"] for slot in range(len(SLOTS))]
    ids = {(each["key"], each["fingerprint"]): None for slot in slots for each in slot["facts"]}
    rows = [Row(index, *row_id) for index, row_id in enumerate(ids)]
    return {row.key: row for row in fold(rows, [each for slot in slots for each in slot["facts"]])}


def store_of_run(api: AirflowApi, value: Any = None, state: str | None = "failed") -> None:
    """Store the record of a run, or a value in its place."""
    store(api, LOST)
    api.tasks[0]["state"] = state
    if value:
        (body,) = api.stored.values()
        body["value"] = value


def store_again(api: AirflowApi) -> None:
    """Store the record of a run, also after the command has changed it."""
    store(api, LOST)
    api.answer = lambda path: store(api, LOST) if api.changes and "taskInstances/report/-1" in path else None


def meta_of(**changes: Any) -> dict[str, Any]:
    return {"airflow": {"dag_id": NAMES[0], "run_id": RUN_ID, "task_id": NAMES[2], "map_index": -1, **changes}}


def found_in(api: AirflowApi, status: Any) -> str:
    """Return what the next attempt finds, and what it does about it."""
    if f"{STORE}/crew_batch?map_index=-1" in api.stored:
        rows = rows_in(api)
        known = ", ".join(f"{key}={row.kickoff.kickoff_id or '-'} ({row.executions})" for key, row in rows.items())
        return f"{known}; row a: {decision_of(rows['a'], status, why=Why(cleared=True, reruns=True))}"
    if not (body := api.stored.get(f"{STORE}/crew_kickoff?map_index=-1")):
        return "nothing"
    record, unread = read_record(body["value"], max_tries=0, now=0)
    assert body.get("expires_at") is None
    after = [decide(record, status, cleared=cleared, is_mapped=True).name for cleared in (False, True)]
    kept = replace(record, kicked_off_at=0, fingerprint=record.fingerprint[:1])
    facts = {key: value for key, value in asdict(kept).items() if value}
    return unread or f"{facts}; retried: {after[0]}, cleared: {after[1]}"


EARLIER = KickoffRecord(0, 1.0, "earlier", address="https://crew.example")
batch, agent = (partial(store_of_kind, kind=kind) for kind in ("batch", "agent"))


def test_records_are_changed_as_in_the_table(run, evaluated, monkeypatch):
    def change(
        command: str,
        prepare: Callable[[AirflowApi], object] = store_of_run,
        task: ScenarioTask = ENDLESS,
        meta: Any = None,
        *,
        typed: str = "",
        status: int = 0,
        version: str = "3.4.0b2",
    ) -> Iterator[str]:
        with serving(version) as api, playing("deployed", task) as crew:
            prepare(api)
            execution = kick_off(crew, **({"meta": meta} if meta else {}))
            if status:
                crew.faults.answer(status, on="status", times=2)
            monkeypatch.setattr("sys.stdin", io.StringIO(typed))
            name, *arguments = command.split()
            ids = [execution] if name == "adopt" else []
            code, told, shown = run(name, api, *ids, *arguments, crew=crew)
            assert len(crew.kickoffs) == 1
            assert api.tokens <= {f"Bearer {OWN_TOKEN}"}
        names = ("state", "cost", "replaces", "forgets", "next_step")
        facts = [f"{key}: {told[key]}" for key in names if key in told]
        head = f"{code} {' '.join(api.changes)}"
        for text in (head, found_in(api, told.get("state")), *facts, *shown.splitlines()):
            plain = text.replace(execution, "EXECUTION").replace(crew.url, "CREW")
            yield plain.replace(api.url, "AIRFLOW").rstrip()

    evaluated("kickoff_records.txt", change=change, **globals() | vars(commands))


@pytest.mark.parametrize("name", ["adopt", "forget"])
def test_task_that_starts_during_the_question_keeps_its_record(run, airflow, monkeypatch, name):
    store(airflow, LOST)

    class Answer:
        def readline(self) -> str:
            airflow.tasks[0]["state"] = "running"
            return "y\n"

    monkeypatch.setattr("sys.stdin", Answer())
    with playing("deployed", ENDLESS) as crew:
        ids = (kick_off(crew),) if name == "adopt" else ()
        assert run(name, airflow, *ids, crew=crew)[0] == FAILED
    assert airflow.changes == []


def test_only_the_record_of_the_map_index_is_forgotten(run, airflow):
    airflow.tasks = [TASK | {"map_index": index} for index in (0, 1)]
    for index in (0, 1):
        store(airflow, KickoffRecord(0, 1.0, f"execution-{index}", address="https://crew.example"), index)
    code, told, _ = run("forget", airflow, "--map-index", "1", "--yes")

    assert (code, airflow.changes, len(airflow.stored)) == (ANSWERED, ["DELETE"], 1)
    assert "execution-1" in told["forgets"]
    assert run("forget", airflow, "--map-index", "1", "--yes")[0] == FAILED


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        *(((status, b"No\n\n"), OWN_TOKEN) for status in (200, 307, 404)),
        ((401, f'{{"detail": "bad token {OWN_TOKEN}"}}'.encode()), OWN_TOKEN),
        (None, OWN_TOKEN),
        *(((401, b""), token) for token in ("", "two\nlines", "\N{SNOWMAN}")),
    ],
)
def test_error_of_airflow_is_one_line(run, monkeypatch, answer, token):
    monkeypatch.setenv("AIRFLOW_CLI_TOKEN", token)
    with serving("3.3.2") as api:
        api.answer = lambda _: answer
        ended = run("forget", api, "--yes") if answer else None
    code, told, shown = ended or run("forget", api, "--yes")
    assert (code, told, len(shown.splitlines())) == (FAILED, {}, 1)


def test_netrc_does_not_replace_the_token(run, airflow, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    run("forget", airflow, "--yes")
    assert airflow.tokens == {f"Bearer {OWN_TOKEN}"}
