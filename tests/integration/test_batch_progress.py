"""Progress of a batch in XCom, which the Crew tab and alerts show."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.batch.rows import STATUSES
from airflow_provider_crew.client.errors import Cost, WaitedTooLong
from airflow_provider_crew.exceptions import BatchFailed, CrewTaskFailed, EndedByAirflow
from tests.integration.tasks import FAILING, SLOW, Task, fired
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


def test_sentences_are_pushed_before_the_first_kickoff(live_crew, batch):
    pushed: list[dict[str, Any]] = []
    live_crew.at_kickoff = lambda: pushed.extend(live_crew.xcoms.progress[:1])
    batch().run()

    lost = pushed[0]["if_lost"]
    assert lost["cost"] == Cost.UNKNOWN.value
    assert {"billed", "if_retried", "next_step", "choices"} <= lost.keys()


def test_batch_without_news_is_pushed_again(live_crew, batch, timing):
    timing(batch_progress=0.05)
    live_crew.scenario = SLOW
    live_crew.at_look(40, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    batch(1).run()

    waiting = [each["polled_at"] for each in live_crew.xcoms.progress if each["batch"]["running"]]
    assert len(waiting) > 4
    assert waiting == sorted(set(waiting))


def test_deferred_batch_keeps_its_choices(live_crew, batch):
    live_crew.scenario = SLOW
    task = batch(1, deferrable=True, cancel_on_kill=True)
    waiting = task.deferred()

    (at_deferral,) = [each for each in live_crew.xcoms.progress if each["batch"]["running"]]
    assert "asks the crew to cancel" in at_deferral["choices"]["mark"]
    assert task.revived(waiting).shown["progress"]["choices"] == at_deferral["choices"]


@pytest.mark.parametrize(
    ("status", "options", "cost"),
    [("uncertain", {}, "unknown"), ("invalid_output", {"output_type": int}, "ended")],
)
def test_too_many_rows_that_no_retry_starts_again_end_the_task(live_crew, batch, status, options, cost):
    if status == "uncertain":
        live_crew.faults.reset(after_taken=True, on="kickoff")
    task = batch(max_failed=0, max_active=1, **options)
    for _ in range(2):
        with pytest.raises(CrewTaskFailed):
            task.run()

        last = live_crew.xcoms.progress[-1]
        assert [(each["status"], each["count"]) for each in last["batch"]["reasons"]] == [(status, 1)]
        assert last["batch"]["failed"] + last["batch"]["uncertain"] == 1
        assert last["end"]["cost"] == cost
    assert len(live_crew.kickoffs) == 1
    clear = live_crew.xcoms.progress[-1]["end"]["choices"]["clear"]
    task.clear()
    live_crew.scenario = FAILING
    with pytest.raises((BatchFailed, CrewTaskFailed)):
        task.run()
    assert (len(live_crew.kickoffs) > 1) is ("which is billed" in clear)


def test_retry_only_waits_if_too_many_rows_are_kept(live_crew, batch):
    live_crew.scenario = SLOW
    live_crew.faults.reset(after_taken=True, on="kickoff")
    task = batch(3, max_failed=0, max_active=2, timeout=0.5)
    with pytest.raises(WaitedTooLong):
        task.run()

    assert "starts 1" not in live_crew.xcoms.progress[-1]["end"]["if_retried"]
    for kickoff in live_crew.kickoffs:
        live_crew.finish(kickoff.kickoff_id)
    with pytest.raises(CrewTaskFailed):
        task.run()
    assert len(live_crew.kickoffs) == 2


@pytest.mark.parametrize("status", [401, 422])
def test_cost_is_unknown_until_an_uncertain_row_starts_again(live_crew, batch, status):
    live_crew.faults.reset(after_taken=True, on="kickoff")
    task = batch(1, max_failed=0)
    for _ in range(3):
        with pytest.raises((BatchFailed, CrewTaskFailed)):
            task.run()
        assert live_crew.xcoms.progress[-1]["end"]["cost"] == "unknown"
        task.clear()
        live_crew.faults.clear()
        live_crew.faults.answer(status, on="kickoff")

    live_crew.faults.clear()
    assert task.run()["counts"]["success"] == 1
    assert len(live_crew.kickoffs) == 2


@pytest.mark.parametrize("rerun", ["failed", "all"])
def test_sentences_name_the_rows_that_a_clear_runs_again(live_crew, batch, rerun):
    task = batch(rerun=rerun)
    task.run()

    clear = live_crew.xcoms.progress[-1]["if_lost"]["choices"]["clear"]
    assert ("which is billed" in clear) is (rerun == "all")
    started = len(live_crew.kickoffs)
    task.clear()
    task.run()
    assert len(live_crew.kickoffs) == started * (2 if rerun == "all" else 1)


def resumed(task: Task, waiting: TaskDeferred, kwargs: dict[str, Any], *, is_quick: bool = False) -> Any:
    """Return what a resumed attempt returns, or its next deferral."""
    event = asyncio.run(fired(task.revived(waiting))) | {"is_quick": is_quick}
    try:
        return task._make().resume_execution("execute_complete", kwargs | {"event": event}, task.context)
    except TaskDeferred as deferred:
        return deferred


def test_resumed_batch_without_its_values_starts_nothing_again(live_crew, batch):
    live_crew.scenario = FAILING
    task = batch(3, deferrable=True, max_failed=None, max_active=1)
    then = task.deferred()
    for _ in range(3):
        then = resumed(task, then, {})  # as dag.test() does

    assert then["counts"]["error"] == len(live_crew.kickoffs) == 3


@pytest.mark.usefixtures("live_crew")
@pytest.mark.parametrize("is_quick", [True, False])
def test_quick_rows_keep_the_task_in_its_worker(batch, is_quick):
    task = batch(8, deferrable=True, max_active=2)
    first = task.deferred()
    then = resumed(task, first, first.kwargs, is_quick=is_quick)
    assert isinstance(then, dict if is_quick else TaskDeferred)


def test_manifest_of_a_cancelled_batch_says_so(live_crew, batch, out, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    task = batch(cancel_on_kill=True)
    begun = task.begin()
    live_crew.after = lambda _: begun.on_kill() if len(live_crew.kickoffs) == 4 else None
    with pytest.raises(CrewTaskFailed) as raised:
        begun.execute(task.context)
    assert isinstance(raised.value.failure, EndedByAirflow)

    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["terminal_reason"] == "cancelled"
    assert manifest["counts"] == dict.fromkeys(STATUSES, 0) | {"cancelled": 4, "not_started": 6}
