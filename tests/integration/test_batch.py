"""A batch, process after process, against the local crew service."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.batch.facts import STATUSES
from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.exceptions import CrewTaskFailed, InvalidResultPath
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.task import send
from tests.integration.batches import lines, newest, rows
from tests.integration.operators import both_ways
from tests.integration.tasks import CONNECTION, QUICK, SLOW, TaskStateStore
from tests.option_values import FIELDS, OPTIONS
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


@both_ways
def test_batch_returns_a_manifest_and_writes_a_line_per_row(live_crew, batch, out, deferrable, monkeypatch):
    reads, read = Counter[str](), ResultFiles.read
    monkeypatch.setattr(ResultFiles, "read", lambda it, name: (reads.update([name]), read(it, name))[1])
    manifest = batch(deferrable=deferrable).run()
    assert {number for name, number in reads.items() if name.startswith("facts/")} == {1}
    assert (manifest["results"], manifest["failed"]) == (str(newest(out)), str(newest(out, "failed")))
    assert manifest["counts"]["success"] == manifest["request_count"] == 10
    assert manifest["terminal_reason"] == "succeeded"
    found = lines(out)
    assert sorted(line["key"] for line in found) == sorted(row["topic"] for row in rows())
    assert live_crew.calls.count("kickoff") == 10
    last = live_crew.xcoms.progress[-1]
    assert (last["state"], last["end"]) == ("completed", None)
    assert last["since"] >= last["started_at"]
    counts = {"total": 10, "ended": 10, "failed": 0, "uncertain": 0, "running": 0, "waiting": 0, "unread": 0}
    assert last["batch"].items() >= counts.items()


def test_single_row_that_has_ended_is_replaced_soon(live_crew, batch, timing):
    timing(batch_wait=1000.0, batch_turn=0.1)
    live_crew.scenario = SLOW

    def after(_: Any) -> None:
        ids = live_crew.ids
        for kickoff_id in ids if len(ids) == 34 else ids[:1] if len(ids) == 33 else []:
            live_crew.finish(kickoff_id)

    live_crew.after = after
    assert batch(34, max_active=33, timeout=20).run()["counts"]["success"] == 34


@pytest.mark.parametrize(("longest", "deferrals"), [(60.0, 1), (0.0, 3)])
def test_batch_of_quick_rows_defers_once(live_crew, batch, timing, monkeypatch, longest, deferrals):
    timing(batch_quick=longest, batch_wait=0.05, batch_turn=0.05)
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="a", seconds=0.3),), inputs=())
    task, events = batch(3, max_active=1, deferrable=True), Counter[str]()
    event_of = task.event_of
    monkeypatch.setattr(task, "event_of", lambda waiting: (events.update(["event"]), event_of(waiting))[1])
    assert task.run()["counts"]["success"] == 3
    assert events["event"] == deferrals


def test_trouble_that_is_over_is_not_shown(live_crew, batch, timing):
    timing(progress_pause=-1.0, progress_refresh=-1.0, progress_refresh_each=-1.0, batch_look=0.01)
    live_crew.scenario = SLOW
    live_crew.faults.answer(503, on="status")

    def after(_: Any) -> None:
        shown = [each["trouble"] for each in live_crew.xcoms.progress if "trouble" in each]
        if any(shown) and not shown[-1]:
            live_crew.finish(live_crew.ids[0])

    live_crew.after = after
    assert batch(1, deferrable=True, timeout=20).run()["counts"]["success"] == 1


def test_every_option_is_sent_for_each_row(live_crew, batch):
    batch(rows(2), **OPTIONS).run()

    sent = [request.json for request in live_crew.requests.on("kickoff")]
    assert sorted(sent, key=lambda each: each["inputs"]["topic"]) == [{"inputs": row} | FIELDS for row in rows(2)]


def test_one_rejected_row_fails_alone_and_is_input_of_another_batch(live_crew, batch, out):
    live_crew.faults.answer(422, on="kickoff")
    manifest = batch(max_failed=1).run()
    assert manifest["counts"] == dict.fromkeys(STATUSES, 0) | {"success": 9, "error": 1}
    assert manifest["terminal_reason"] == "partial"
    (failed,) = lines(out, "failed")
    assert failed["error"]["stage"] == "kickoff"
    assert failed["inputs"]["topic"] == failed["key"]

    again = batch(manifest["failed"], result_path=str(out.parent / "again"))
    again.store = TaskStateStore()
    assert again.run()["counts"]["success"] == 1
    assert len(live_crew.kickoffs) == 10


def test_changed_and_removed_rows_are_named(live_crew, batch, out):
    given = rows()
    task = batch(given)
    task.run()
    given[3]["audience"] = "pilots"
    del given[5]
    given.reverse()
    given.append({"topic": "new", "audience": "sailors"})
    task.clear()
    manifest = task.run()
    assert (manifest["changed"], manifest["removed"], manifest["request_count"]) == (1, 1, 10)
    assert len(live_crew.kickoffs) == 12
    assert [line["key"] for line in sorted(lines(out), key=lambda line: line["index"])] == [
        row["topic"] for row in given
    ]


def test_results_are_kept_until_rows_start_again(live_crew, batch, out):
    task = batch(rerun="all")
    task.run()
    outputs = {line["raw_output"] for line in lines(out)}
    task.clear()
    live_crew.faults.answer(401, on="kickoff", for_seconds=math.inf)
    with pytest.raises(CrewTaskFailed):
        task.run()

    found = lines(out)
    assert {line["status"] for line in found} == {"not_started"}
    assert {line["raw_output"] for line in found} == outputs != {None}


@pytest.mark.parametrize("rejects", [1, 2])
@pytest.mark.parametrize(("text", "data"), [('["a"]', None), ("a text", ["a"])])
def test_output_that_is_checked_again_is_the_same(live_crew, batch, out, text, data, rejects):
    live_crew.scenario = QUICK.model_copy(update={"output": text, "result_json": data, "dialect": "deployed"})
    seen: list[Any] = []

    def check(_: Any, output: Any) -> bool:
        seen.append(output)
        return len(seen) > rejects

    task = batch(1, check=check, max_failed=None)
    for _ in range(rejects + 1):
        task.run()
        task.clear()
    assert [*seen, lines(out)[0]["output"]] == [["a"]] * (rejects + 2)
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("ledger")
def test_manifest_is_partial_if_rows_did_not_start(live_crew, batch, out, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?max_kickoffs_per_day=1")
    with pytest.raises(CrewTaskFailed):
        batch(2).run()
    (manifest,) = lines(out, "manifest")
    assert (manifest["counts"]["not_started"], manifest["terminal_reason"]) == (1, "partial")


@pytest.mark.parametrize("iteration", [None, 1])
def test_result_path_of_another_batch_is_rejected(live_crew, batch, iteration):
    batch().run()
    other = batch()
    other.store = TaskStateStore()
    loop = {"loop": SimpleNamespace(index=iteration)} if iteration else {}
    other.ti.run_id = other.ti.run_id if iteration else "manual__2027"
    for _ in range(2):
        with pytest.raises(CrewTaskFailed) as raised:
            other.begin().execute(other.context | loop)
        assert isinstance(raised.value.failure, InvalidResultPath)
        assert "billed" not in live_crew.xcoms.progress[-1]["end"]["if_cleared"]
        other.clear()
    assert len(live_crew.kickoffs) == 10


@pytest.mark.parametrize(("is_next_day", "totals"), [(False, [2]), (True, [2, 1])])
def test_kickoff_that_starts_nothing_counts_once_a_day(live_crew, ledger, batch, monkeypatch, is_next_day, totals):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?max_kickoffs_per_day=4")
    live_crew.faults.hang(on="kickoff", seconds=0.01, after_taken=True)
    live_crew.faults.answer(429, on="kickoff", for_seconds=math.inf)
    task = batch(2, max_active=2, deferrable=True)
    waiting = task.deferred()
    live_crew.faults.clear()
    if is_next_day:
        monkeypatch.setattr(send, "datetime", SimpleNamespace(now=lambda zone: datetime(2031, 5, 7, tzinfo=zone)))
    assert task.finish(waiting)["counts"]["success"] == len(live_crew.kickoffs) == 2
    assert [run["total"] for run in ledger.runs.values()] == totals
