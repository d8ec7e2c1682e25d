"""Deferred tasks that resume with a result too large for an event, or without an event."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred

from airflow_provider_crew.client.errors import (
    Cost,
    ExecutionFailed,
    ExecutionUnknown,
    InvalidKickoffId,
    LostContact,
    WaitedTooLong,
)
from airflow_provider_crew.exceptions import CrewTaskFailed, CrewTaskTimeout
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from tests.integration.operators import run
from tests.integration.tasks import CONNECTION, SLOW, TOKEN, Task, fired, revived

pytest_plugins = ["tests.integration.task_fixtures"]

LARGE = Scenario(tasks=(ScenarioTask(name="a", seconds=3600, output="x" * 70_000),), inputs=())


@pytest.mark.parametrize("status", [None, 503, 404])
@pytest.mark.parametrize("with_store", [False, True])
def test_large_result_survives_an_outage_and_the_deadline(live_crew, store, with_store, status):
    task = Task(lambda: run(deferrable=True), store=store if with_store else None)
    waiting, event = large_event(task, live_crew)
    if status:
        live_crew.faults.answer(status, on="status", times=4)

    assert "result" not in event
    assert len(json.dumps(event)) < 2000
    assert task.resume(waiting, event | {"deadline": 0.0})["output"] == "x" * 70_000
    assert len(live_crew.kickoffs) == 1


def large_event(task: Task, live_crew: Any) -> tuple[Any, dict[str, Any]]:
    live_crew.scenario = LARGE
    waiting = task.deferred()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    return waiting, asyncio.run(fired(revived(waiting.trigger)))


def test_completed_execution_is_never_reported_as_running(live_crew, store, monkeypatch):
    def timeout(*_: Any) -> None:
        raise AirflowTaskTimeout("over")

    task = Task(lambda: run(deferrable=True), store=store, retries=1)
    waiting, event = large_event(task, live_crew)
    monkeypatch.setattr("airflow_provider_crew.task.record.Record.save_kickoff_id", timeout)

    with pytest.raises(CrewTaskTimeout) as caught:
        task.resume(waiting, event)

    assert (caught.value.cost, caught.value.kickoff_id) == (Cost.ENDED, live_crew.kickoffs[0].kickoff_id)


GONE = "{{ 1 // 0 }}"


@pytest.mark.parametrize("with_store", [False, True])
def test_resumed_task_does_not_need_its_templates(live_crew, store, with_store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store if with_store else None, retries=1)
    waiting = task.deferred()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    event = asyncio.run(fired(revived(waiting.trigger)))
    resumed = run(inputs={"topic": GONE}, crew_conn_id="crew_{{ 'default' }}")

    resumed.render_template_fields(task.context)

    result = resumed.resume_execution("execute_complete", {"event": event}, task.context)

    assert result["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert resumed.crew_conn_id == "crew_default"
    assert len(live_crew.kickoffs) == 1


def test_task_that_starts_needs_its_templates(live_crew, store):
    task = Task(lambda: run(inputs={"topic": GONE}), store=store)

    with pytest.raises(ZeroDivisionError):
        task.begin().render_template_fields(task.context)

    assert not live_crew.kickoffs


def test_received_result_needs_no_connection(live_crew):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True))
    task.deferred()
    event = {"kickoff_id": task.ti.xcoms["kickoff_id"], "result": '{"output": "Done."}'}
    resumed = run(crew_conn_id="missing")

    assert resumed.resume_execution("execute_complete", {"event": event}, task.context)["output"] == "Done."


@pytest.fixture
def deferred(live_crew, monkeypatch) -> tuple[Task, TaskDeferred]:
    """A task of an Airflow (3.1) that may resume a retry with the event of an earlier attempt."""
    monkeypatch.setattr("airflow_provider_crew.versions.KEEPS_OLD_EVENTS", True)
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), retries=1)
    return task, task.deferred()


def test_event_of_an_earlier_attempt_does_not_end_a_retry(live_crew, deferred):
    task, waiting = deferred
    live_crew.set_status(live_crew.kickoffs[0].kickoff_id, {"status": "error", "error": "Out of credit"})
    event = asyncio.run(fired(revived(waiting.trigger)))
    with pytest.raises(ExecutionFailed):
        task.resume(waiting, event)
    task.ti.try_number += 1

    with pytest.raises(TaskDeferred):
        task.resume(waiting, event)
    assert len(live_crew.kickoffs) == 2


def test_retry_returns_result_in_event_of_earlier_attempt(live_crew, deferred):
    """The earlier attempt was lost before it returned the result."""
    task, waiting = deferred
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    event = asyncio.run(fired(revived(waiting.trigger)))
    task.ti.try_number += 1

    assert task.resume(waiting, event)["kickoff_id"] == live_crew.kickoffs[0].kickoff_id

    assert len(live_crew.kickoffs) == 1


def test_result_at_another_address_is_not_given_up(live_crew, store, monkeypatch):
    """The connection was changed while the event was on its way."""
    task = Task(lambda: run(deferrable=True, max_outage=0.2), store=store, retries=1)
    waiting, event = large_event(task, live_crew)
    with LocalCrewService(token=TOKEN) as another:
        kept = os.environ[CONNECTION]
        monkeypatch.setenv(CONNECTION, kept.replace(live_crew.url.split("//")[1], another.url.split("//")[1]))

        with pytest.raises(CrewTaskFailed, match=re.escape(live_crew.url)) as caught:
            task.resume(waiting, event)
        assert isinstance(caught.value.failure, ExecutionUnknown)
        assert caught.value.failure.elsewhere == live_crew.url

        monkeypatch.setenv(CONNECTION, kept)
        task.clear()
        assert task.run()["output"] == "x" * 70_000
        assert len(live_crew.kickoffs) == 1


def test_task_cleared_while_deferring_reattaches(live_crew, store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store)
    waiting = task.deferred()
    task.ti.try_number += 1

    with pytest.raises(TaskDeferred):
        run(deferrable=True).resume_execution(waiting.method_name, waiting.kwargs or {}, task.context)

    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("why", ["Trigger timeout", "Trigger failure"])
@pytest.mark.parametrize("with_store", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_resuming_without_an_event_ends_as_the_crew_did(live_crew, store, why, with_store, fails):
    live_crew.scenario = SLOW
    refused = frozenset({"kickoff_id"} if with_store else ())
    task = Task(lambda: run(deferrable=True), store=store if with_store else None, refused_xcoms=refused)
    task.deferred()
    kickoff_id = live_crew.kickoffs[0].kickoff_id
    if fails:
        live_crew.set_status(kickoff_id, {"status": "error", "error": "out of credit"})
        with pytest.raises(ExecutionFailed, match="out of credit"):
            task.resume_without_event(why)
    else:
        live_crew.finish(kickoff_id)
        assert task.resume_without_event(why)["kickoff_id"] == kickoff_id


@pytest.mark.parametrize("down", [False, True], ids=["still going", "no answer"])
@pytest.mark.parametrize("with_store", [False, True])
@pytest.mark.parametrize(
    ("why", "error"), [("Trigger timeout", WaitedTooLong), ("Trigger failure", LostContact)], ids=str
)
def test_resuming_without_an_event_reports_the_execution(live_crew, store, task_log, why, error, with_store, down):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store if with_store else None, retries=1)
    task.deferred()
    if down:
        live_crew.faults.refuse()

    caught: Any
    with pytest.raises(error if with_store else CrewTaskFailed) as caught:
        task.resume_without_event(why, traceback=["Traceback\n", "KeyError: 'x'\n"])

    assert isinstance(caught.value if with_store else caught.value.failure, error)
    assert caught.value.cost is Cost.RUNNING
    assert caught.value.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert "KeyError: 'x'" in task_log.text


def test_record_unreadable_on_resuming_serves_the_next_attempt(live_crew, store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store, retries=1)
    task.deferred()
    store.breaks_at = lambda name: name == "get"
    with pytest.raises(WaitedTooLong):
        task.resume_without_event("Trigger timeout")

    store.breaks_at = lambda _: False
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("live_crew")
def test_resuming_without_a_kickoff_id_fails():
    task = Task(lambda: run(deferrable=True))

    with pytest.raises(CrewTaskFailed) as caught:
        task.resume_without_event("Trigger failure")

    assert isinstance(caught.value.failure, InvalidKickoffId)
    assert caught.value.cost is Cost.RUNNING


def test_subclass_resumes_in_a_method_of_its_own():
    class Deferring(CrewKickoffOperator):
        def own_method(self, _context: Any, event: dict[str, Any]) -> str:
            return str(event["kickoff_id"])

    task = Deferring(task_id="crew", inputs={})

    assert task.resume_execution("own_method", {"event": {"kickoff_id": "4711"}}, {}) == "4711"
