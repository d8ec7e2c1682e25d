"""Progress of a batch in XCom, which the Crew tab and alerts show."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.batch.rows import STATUSES
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.exceptions import CrewTaskFailed, EndedByAirflow
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
