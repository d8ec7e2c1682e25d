"""Deferral and resumption of a task that Airflow, or a trigger, ends at that moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.triggers.events import DEFERRAL, STOP_WAITING
from tests.integration.operators import run, run_task, sensor_task
from tests.integration.tasks import ASKING, CONNECTION, SLOW, TASK_STATES, Task, fired
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

needs_triggers_that_cancel = pytest.mark.skipif(AIRFLOW < (3, 3), reason="triggers cannot cancel in this Airflow")


@needs_triggers_that_cancel
@pytest.mark.parametrize("kind", [run_task, sensor_task])
def test_deferral_is_over_after_the_trigger_failed(live_crew, store, kind):
    live_crew.scenario = SLOW
    task = kind(live_crew, store=store, deferrable=True, cancel_on_kill=True)
    waiting = task.deferred()
    assert task.ti.xcoms[DEFERRAL] == waiting.trigger.deferred_at

    with pytest.raises(Exception, match="no longer polls"):
        task.resume_without_event("Trigger failure", ["Boom"])

    assert task.ti.xcoms[DEFERRAL] is None


@needs_triggers_that_cancel
def test_deferral_is_over_before_the_event(live_crew, store, monkeypatch):
    pushed: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        "airflow_provider_crew.triggers.watching.push_xcom", lambda _, key, value: pushed.append((key, value))
    )
    live_crew.scenario = SLOW
    live_crew.at_look(1, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    task = run_task(live_crew, store=store, deferrable=True, cancel_on_kill=True)

    asyncio.run(fired(task.revived(task.deferred())))

    assert pushed == [(DEFERRAL, None)]


@needs_triggers_that_cancel
def test_task_that_is_marked_while_it_defers_cancels(live_crew, store, monkeypatch):
    live_crew.scenario = SLOW
    task = run_task(live_crew, store=store, deferrable=True, cancel_on_kill=True)
    monkeypatch.setattr(TASK_STATES, lambda **_: {"run": {"crew": "failed"}})
    operator, push = task.begin(), task.ti.xcom_push

    def marked(key: str, value: Any) -> None:
        push(key, value)
        if key == DEFERRAL:
            operator.on_kill()

    task.ti.xcom_push = marked  # type: ignore[method-assign]
    with pytest.raises(Exception, match="cancelled"):
        operator.execute(task.context)

    assert len(live_crew.requests.on("stop")) == 1


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no requests for deferred tasks")
def test_stopped_wait_is_not_retried_without_a_connection(live_crew, store, monkeypatch, timing):
    timing(not_found_grace=0.0, unknown_poll=0.0)
    live_crew.scenario = ASKING
    task = Task(lambda: run(deferrable=True, human_input=True), store=store, retries=2)
    waiting = task.deferred()
    event = asyncio.run(fired(task.revived(waiting)))
    with pytest.raises(TaskDeferred) as asked:
        task.resume(waiting, event)
    monkeypatch.delenv(CONNECTION)

    with pytest.raises(CrewTaskFailed):
        task.resume(asked.value, {"chosen_options": [STOP_WAITING], "responded_by_user": {"name": "ann"}})
