"""``python -m airflow_provider_crew adopt`` and ``forget``: requests to Airflow, stored records and refusals."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_crew.batch.rows import Row, decision_of, merged
from airflow_provider_crew.cli import ANSWERED, FAILED, UNDECIDED
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import ScenarioTask
from airflow_provider_crew.task.decide import Decision, KickoffRecord, decide
from airflow_provider_crew.task.record import as_stored, read_record
from tests.integration.airflow_api import TASK, AirflowApi, serving
from tests.integration.commands import ASKING, ENDLESS, FAILING, OWN_TOKEN, WRITING, kick_off, playing

pytest_plugins = ["tests.integration.command_fixtures"]

RUN_ID = "manual__2026-11-26T10:00:00+00:00"
NAMES = ("crew_report", RUN_ID, "report")
STORE = f"/api/v2/dags/crew_report/dagRuns/{RUN_ID}/taskInstances/report/state-store"
# Sent, reported, and never answered.
LOST = KickoffRecord(0, 1.0, reported=True, address="https://crew.example", fingerprint="f" * 64, try_number=1)


@pytest.fixture
def version() -> str:
    """Airflow's version, on which only the next step after an adoption depends."""
    return "3.4.0b2"


@pytest.fixture
def airflow(version):
    with serving(version) as api:
        yield api


@pytest.fixture
def run(command, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CLI_TOKEN", f"{OWN_TOKEN}\n")
    return lambda name, api, *more, crew=None: command(name, *NAMES, "--url", api.url, *more, crew=crew)


def store(api: AirflowApi, record: KickoffRecord, map_index: int = -1) -> None:
    """Store a record as a task does."""
    api.stored[f"{STORE}/crew_kickoff?map_index={map_index}"] = {"value": as_stored(record)}


def only_record(api: AirflowApi) -> KickoffRecord:
    """Read the record as the next attempt does."""
    (body,) = api.stored.values()
    record, unread = read_record(body["value"], max_tries=0, now=0)
    assert unread == ""
    assert body.get("expires_at", None) is None
    return record


STATES: dict[str, tuple[ScenarioTask, str, Decision]] = {
    "running": (ENDLESS, "running", Decision.REATTACH),
    "completed": (WRITING, "completed", Decision.REATTACH),
    "failed": (FAILING, "failed", Decision.KICK_OFF_AFTER_END),
    "waiting for a person": (ASKING, "unknown", Decision.REATTACH),
}


@pytest.mark.parametrize("version", ["3.3.2", "3.4.0b2"])
@pytest.mark.parametrize(("task", "state", "decision"), STATES.values(), ids=STATES)
def test_adopted_execution_is_that_of_the_next_attempt(run, airflow, task, state, decision):
    store(airflow, LOST)
    with playing("deployed", task) as crew:
        execution = kick_off(crew)
        force = ["--force"] if state == "unknown" else []
        code, told, _ = run("adopt", airflow, execution, "--yes", *force, crew=crew)

        assert len(crew.kickoffs) == 1
    assert (code, told["state"]) == (ANSWERED, state)
    assert ("billed again" in told["next_step"]) is (state == "failed")
    assert ("Keep task state" in told["next_step"]) is (airflow.version >= "3.4" and state != "failed")
    record = only_record(airflow)
    address = LOST.address if state == "unknown" else crew.url  # while it is unknown there, it must be elsewhere
    assert (record.kickoff_id, record.address, record.end) == (execution, address, None)
    assert record.fingerprint == LOST.fingerprint  # another row may have its map index by now
    assert record.try_number == LOST.try_number  # in the meta that the crew's questions repeat
    is_old = time.time() - record.kicked_off_at > 3600
    for cleared in (True, False):
        assert (
            decide(record, state, cleared=cleared, chooses_twice=False, is_old=is_old, is_mapped=True) is decision
        )
    assert airflow.tokens == {f"Bearer {OWN_TOKEN}"}


def test_adopted_execution_replaces_another_by_name(run, airflow, monkeypatch):
    store(airflow, KickoffRecord(0, 1.0, "earlier", address="https://crew.example"))
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    with playing("deployed", ENDLESS) as crew:
        execution = kick_off(crew)
        code, _, shown = run("adopt", airflow, execution, crew=crew)
        assert (code, airflow.changes) == (FAILED, [])
        assert {"earlier", execution} <= {*shown.split()}

        assert "earlier" in run("adopt", airflow, execution, "--yes", crew=crew)[1]["replaces"]
    assert only_record(airflow).kickoff_id == execution


@pytest.mark.parametrize(
    "state",
    [None, "scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting"],
)
@pytest.mark.parametrize("name", ["adopt", "forget"])
def test_record_of_a_task_that_has_not_ended_is_kept(run, airflow, state, name):
    store(airflow, LOST)
    airflow.tasks[0]["state"] = state
    with playing("deployed", ENDLESS) as crew:
        ids = (kick_off(crew),) if name == "adopt" else ()
        assert run(name, airflow, *ids, "--yes", crew=crew)[0] == FAILED
    assert airflow.changes == []


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


def test_record_that_is_overwritten_at_once_is_an_error(run, airflow):
    store(airflow, LOST)

    def overwrite() -> None:
        if airflow.changes:
            store(airflow, LOST)

    with playing("deployed", ENDLESS) as crew:
        execution = kick_off(crew)
        airflow.answer = lambda path: overwrite() if "taskInstances/report/-1" in path else None
        assert run("adopt", airflow, execution, "--yes", crew=crew)[0] == FAILED


@pytest.mark.parametrize("name", ["adopt", "forget"])
def test_airflow_without_task_states_is_named(run, name):
    with serving("3.2.2") as api, playing("deployed", ENDLESS) as crew:
        ids = (kick_off(crew),) if name == "adopt" else ()
        code, told, shown = run(name, api, *ids, "--yes", crew=crew)
    assert (code, told, len(shown.splitlines())) == (FAILED, {}, 1)
    assert "Airflow 3.3" in shown
    assert api.changes == []


# What a batch stores about the rows of a group: key, fingerprint, kickoff ID, time, kickoffs, group.
LINES = {
    "old": [["a", "f" * 64, "", 1.0, 1, "old"], ["b", "e" * 64, "of-b", 1.0, 1, "old"]],
    "new": [["a", "f" * 64, "", 2.0, 2, "new"], ["c", "d" * 64, "", 2.0, 1, "new"]],
}
STORES: dict[str, dict[str, Any]] = {
    "batch": {"": {"groups": ["new", "old"], "max_tries": 0}} | {f"_{name}": LINES[name] for name in LINES},
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
    sent = [line for group in LINES for line in api.stored[f"{STORE}/crew_batch_{group}?map_index=-1"]["value"]]
    rows = [
        Row(index, key, digest) for index, (key, digest) in enumerate({line[0]: line[1] for line in sent}.items())
    ]
    merged(rows, [], sent)
    return {row.key: row for row in rows}


def store_of_run(api: AirflowApi, value: Any = None) -> None:
    """Store the record of a run, or a value in its place."""
    store(api, LOST)
    if value:
        (body,) = api.stored.values()
        body["value"] = value


NOTHING_TO_ADOPT: dict[str, tuple[Callable[[AirflowApi], object], list[str]]] = {
    "nothing": (lambda _: None, []),
    "row of a run": (store_of_run, ["--row", "a"]),
    "unreadable record": (lambda api: store_of_run(api, "s3://bucket/of/a/backend"), []),
    "agent": (lambda api: store_of_kind(api, "agent"), []),
    "row of an agent": (lambda api: store_of_kind(api, "agent"), ["--row", "a"]),
    "batch": (lambda api: store_of_kind(api, "batch"), []),
    "unknown row": (lambda api: store_of_kind(api, "batch"), ["--row", "z"]),
    "row with an execution": (lambda api: store_of_kind(api, "batch"), ["--row", "b"]),
}


@pytest.mark.parametrize(("prepare", "arguments"), NOTHING_TO_ADOPT.values(), ids=NOTHING_TO_ADOPT)
def test_record_that_no_attempt_would_read_is_not_written(run, airflow, prepare, arguments):
    prepare(airflow)
    with playing("deployed", ENDLESS) as crew:
        execution = kick_off(crew)
        assert run("adopt", airflow, execution, "--yes", *arguments, crew=crew)[0] == FAILED
    assert airflow.changes == []


@pytest.mark.parametrize(
    ("task", "decision"), [(ENDLESS, Decision.REATTACH), (FAILING, Decision.KICK_OFF_AFTER_END)]
)
def test_adopted_row_of_a_batch_is_that_of_the_next_attempt(run, airflow, task, decision):
    store_of_kind(airflow, "batch")
    with playing("deployed", task) as crew:
        execution = kick_off(crew)
        code, told, _ = run("adopt", airflow, execution, "--yes", "--row", "a", crew=crew)

    assert (code, airflow.changes) == (ANSWERED, ["PUT"])
    assert ("no further cost" in told["next_step"]) is (decision is Decision.REATTACH)
    rows = rows_in(airflow)
    assert {key: row.kickoff_id for key, row in rows.items()} == {"a": execution, "b": "of-b", "c": ""}
    assert (rows["a"].attempts, rows["a"].group) == (2, "new")
    status: Any = "running" if task is ENDLESS else "failed"
    assert decision_of(rows["a"], status, cleared=True, chooses_twice=False, rerun="failed") is decision


def meta_of(**changes: Any) -> dict[str, Any]:
    return {"airflow": {"dag_id": NAMES[0], "run_id": RUN_ID, "task_id": NAMES[2], "map_index": -1, **changes}}


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (meta_of(try_number=1), ANSWERED),
        ({"customer": 4711}, ANSWERED),
        (meta_of(run_id="another"), FAILED),
        (meta_of(task_id="another"), FAILED),
        (meta_of(map_index=3), FAILED),
    ],
    ids=["own", "of the author", "another run", "another task", "another row"],
)
def test_execution_of_another_task_is_adopted_by_a_person_only(run, airflow, monkeypatch, meta, code):
    store(airflow, LOST)
    with playing("deployed", WRITING, WRITING) as crew:
        execution = kick_off(crew, meta=meta)
        assert run("adopt", airflow, execution, "--yes", "--force", crew=crew)[0] == code
        assert bool(airflow.changes) is (code == ANSWERED)

        monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
        assert run("adopt", airflow, execution, crew=crew)[0] == ANSWERED


def test_execution_of_another_row_is_not_adopted(run, airflow):
    store_of_kind(airflow, "batch")
    with playing("deployed", WRITING) as crew:
        execution = kick_off(crew, meta=meta_of(row="c"))
        assert run("adopt", airflow, execution, "--yes", "--row", "a", crew=crew)[0] == FAILED
        assert run("adopt", airflow, execution, "--yes", "--row", "c", crew=crew)[0] == ANSWERED


def test_unknown_execution_is_adopted_by_force_only(run, airflow):
    store(airflow, LOST)
    with playing("deployed", WRITING) as crew:
        assert run("adopt", airflow, "4711", "--yes", crew=crew)[0] == FAILED
        assert airflow.changes == []
        assert run("adopt", airflow, "4711", "--yes", "--force", crew=crew)[0] == ANSWERED
    assert only_record(airflow).kickoff_id == "4711"


@pytest.mark.parametrize(("status", "code"), [(401, FAILED), (503, UNDECIDED)])
def test_execution_that_is_unreadable_is_not_adopted(run, airflow, status, code):
    store(airflow, LOST)
    with playing("deployed", ENDLESS) as crew:
        execution = kick_off(crew)
        crew.faults.answer(status, on="status", times=2)
        ended, told, _ = run("adopt", airflow, execution, "--yes", crew=crew)
    assert (ended, told["cost"] == Cost.NONE, airflow.changes) == (code, False, [])


@pytest.mark.parametrize("answer", ["no\n", "\n"])
def test_unconfirmed_record_is_not_forgotten(run, airflow, monkeypatch, answer):
    store(airflow, LOST)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    code, _, shown = run("forget", airflow)
    assert (code, airflow.changes) == (FAILED, [])
    assert all(name in shown for name in NAMES)


def test_failed_rows_are_forgotten_together(run, airflow):
    rows = {0: "failed", 1: "success", 2: "failed", 3: "failed", 4: "running"}
    airflow.tasks = [TASK | {"map_index": index, "state": state} for index, state in rows.items()]
    for index in (0, 1, 2, 4):
        store(airflow, KickoffRecord(0, 1.0, f"execution-{index}", address="https://crew.example"), index)
    code, told, _ = run("forget", airflow, "--failed", "--yes")

    assert (code, len(told), len(airflow.stored), airflow.changes) == (ANSWERED, 4, 2, ["DELETE", "DELETE"])
    text = json.dumps(told)
    assert [index for index in rows if f"execution-{index}" in text] == [0, 2]
    assert run("forget", airflow, "--failed", "--yes")[0] == FAILED
    assert run("forget", airflow, "--map-index", "1", "--yes")[0] == ANSWERED
    assert len(airflow.stored) == 1


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        *(((status, b"No\n\n"), OWN_TOKEN) for status in (200, 307, 403, 404, 500)),
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
