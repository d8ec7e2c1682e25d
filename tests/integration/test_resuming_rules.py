"""A deferred task is resumed: with a result too large to be carried along, or with no event at all."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.service.errors import Cost, ExecutionFailed, LostContact, WaitedTooLong
from airflow_provider_crew.tasks.ends import CrewTaskFailed
from tests.integration.tasks import CONNECTION, INPUTS, SLOW, TOKEN, Task, fired, outlives_the_return, revived

pytest_plugins = ["tests.integration.task_fixtures"]

LARGE = Scenario(tasks=(ScenarioTask(name="a", seconds=0.2, output="x" * 70_000),), inputs=())


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


def test_a_large_result_is_read_by_the_resumed_task(live_crew):
    task = Task(lambda: run(deferrable=True))
    waiting, event = large_event(task, live_crew)

    assert "result" not in event
    assert len(json.dumps(event)) < 1000
    assert task.resume(waiting, event)["output"] == "x" * 70_000


@pytest.mark.parametrize("status", [503, 404])
@pytest.mark.parametrize("with_store", [False, True])
def test_a_large_result_is_not_lost_to_a_hiccup_of_the_service_nor_to_the_deadline(
    live_crew, store, with_store, status
):
    task = Task(lambda: run(deferrable=True), store=store if with_store else None)
    waiting, event = large_event(task, live_crew)
    live_crew.faults.answer(status, on="status", times=4)

    assert task.resume(waiting, event | {"deadline": 0.0})["output"] == "x" * 70_000
    assert len(live_crew.kickoffs) == 1


def large_event(task: Task, live_crew: Any) -> tuple[Any, dict[str, Any]]:
    live_crew.scenario = LARGE
    waiting = task.deferred()
    return waiting, asyncio.run(fired(revived(waiting.trigger)))


GONE = "{{ 1 // 0 }}"


def test_a_resumed_task_does_not_need_what_its_inputs_were_made_of(live_crew, store, task_log):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store)
    task.deferred()
    (execution,) = task.ti.xcoms.values()
    resumed = run(deferrable=True, inputs={"topic": GONE}, crew_conn_id="crew_{{ 'default' }}")

    resumed.render_template_fields(task.context)

    with pytest.raises(TaskDeferred):
        resumed.execute(task.context)
    assert len(live_crew.kickoffs) == 1
    assert resumed.crew_conn_id == "crew_default"
    assert f"Execution {execution}: the task's templates cannot be rendered again" in task_log.text


@pytest.mark.parametrize("with_store", [False, True])
def test_a_resumed_task_whose_connection_is_not_known_any_more_starts_nothing_anew(live_crew, store, with_store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store if with_store else None, retries=1)
    task.deferred()
    execution = task.ti.xcoms["kickoff_id"]
    resumed = run(crew_conn_id=GONE)
    resumed.render_template_fields(task.context)

    with pytest.raises(
        CrewTaskFailed, match=f"(?s)Execution {execution} cannot be watched.*cannot be used"
    ) as caught:
        resumed.resume_execution("__fail__", {"error": "Trigger failure"}, task.context)

    assert len(live_crew.kickoffs) == 1
    assert with_store or f'CrewExecutionSensor(kickoff_id="{execution}")' in str(caught.value)


def test_a_result_that_has_come_needs_no_connection_any_more(live_crew):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True))
    task.deferred()
    event = {"kickoff_id": task.ti.xcoms["kickoff_id"], "result": '{"output": "Done."}'}
    resumed = run(crew_conn_id=GONE)
    resumed.render_template_fields(task.context)

    assert resumed.resume_execution("execute_complete", {"event": event}, task.context)["output"] == "Done."


def failed_event(task: Task, live_crew: Any) -> tuple[Any, dict[str, Any]]:
    """Let the crew of a deferred try fail, and so that try; return what it was resumed with."""
    live_crew.scenario = SLOW
    waiting = task.deferred()
    live_crew.set_status(live_crew.kickoffs[0].kickoff_id, {"status": "error", "error": "Out of credit"})
    event = asyncio.run(fired(revived(waiting.trigger)))
    with pytest.raises(ExecutionFailed):
        task.resume(waiting, event)
    return waiting, event


def test_what_the_try_before_was_told_does_not_end_a_retry(live_crew, monkeypatch):
    """As it does on Airflow 3.0."""
    monkeypatch.setattr("airflow_provider_crew.compat._KEEPS_OLD_EVENTS", True)
    task = Task(lambda: run(deferrable=True), retries=1)
    waiting, event = failed_event(task, live_crew)
    task.ti.try_number += 1

    with pytest.raises(TaskDeferred):
        task.resume(waiting, event)

    assert len(live_crew.kickoffs) == 2


@pytest.mark.parametrize("with_store", [False, True])
def test_a_retry_that_is_told_again_kicks_nothing_off_with_a_template(live_crew, store, monkeypatch, with_store):
    """As Airflow 3.0 resumes one, which keeps the XComs of the try before."""
    monkeypatch.setattr("airflow_provider_crew.compat._KEEPS_OLD_EVENTS", True)
    task = Task(lambda: run(deferrable=True), retries=1, store=store if with_store else None)
    waiting, event = failed_event(task, live_crew)
    task.ti.try_number += 1
    retry = run(deferrable=True, inputs={"topic": GONE})
    retry.render_template_fields(task.context)

    with pytest.raises(ZeroDivisionError):
        retry.resume_execution(waiting.method_name, {**(waiting.kwargs or {}), "event": event}, task.context)

    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("status", [401, 503])
def test_what_ends_the_reading_of_a_result_says_that_the_execution_has_ended(
    live_crew, store, monkeypatch, status
):
    monkeypatch.setattr("airflow_provider_crew.service.limits.TOKEN_PATIENCE", 0.1)
    task = Task(lambda: run(deferrable=True, max_outage=0.2), store=store, retries=1)
    waiting, event = large_event(task, live_crew)
    live_crew.faults.answer(status, on="status", times=1000)

    caught: Any
    with pytest.raises((LostContact, CrewTaskFailed)) as caught:
        task.resume(waiting, event)

    assert caught.value.cost is Cost.ENDED
    live_crew.faults.clear()
    assert task.run()["output"] == "x" * 70_000
    assert len(live_crew.kickoffs) == 1


@outlives_the_return
@pytest.mark.parametrize("human_input", [False, True])
def test_a_completed_execution_that_is_forgotten_is_waited_for_no_longer_than_an_outage(
    live_crew, store, human_input
):
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="a", output="[1]"),), inputs=())
    types: list[object] = [dict]
    task = Task(lambda: run(output_type=types[0], max_outage=0.2, human_input=human_input), store=store, retries=1)
    with pytest.raises(CrewTaskFailed, match="its output does not fit"):
        task.run()
    live_crew.forget(live_crew.kickoffs[0].kickoff_id)
    task.clear()
    types[0] = None

    with pytest.raises(CrewTaskFailed, match="has completed, and its result cannot be read") as caught:
        task.run()

    assert caught.value.cost is Cost.ENDED
    assert len(live_crew.kickoffs) == 1
    live_crew.scenario = LARGE
    task.clear()
    assert task.run()["output"] == "x" * 70_000
    assert len(live_crew.kickoffs) == 2


def test_a_result_that_is_elsewhere_is_not_taken_for_gone(live_crew, store, monkeypatch):
    """The connection was changed while the event was on its way."""
    task = Task(lambda: run(deferrable=True, max_outage=0.2), store=store, retries=1)
    waiting, event = large_event(task, live_crew)
    with LocalCrewService(token=TOKEN) as another:
        kept = os.environ[CONNECTION]
        monkeypatch.setenv(CONNECTION, kept.replace(live_crew.url.split("//")[1], another.url.split("//")[1]))

        with pytest.raises(CrewTaskFailed, match="was kicked off at another address"):
            task.resume(waiting, event)

        monkeypatch.setenv(CONNECTION, kept)
        task.clear()
        assert task.run()["output"] == "x" * 70_000
        assert len(live_crew.kickoffs) == 1


def test_a_try_that_is_begun_anew_when_it_was_to_resume_kicks_nothing_off(live_crew):
    """As Airflow 3.1 and 3.2 do when they cannot load the DAG."""
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True))
    task.deferred()
    task.ti.try_number -= 1
    task.reschedules = 1

    with pytest.raises(CrewTaskFailed, match="(?s)has begun it anew.*is paid for.*The task is not retried"):
        task.run()

    assert len(live_crew.kickoffs) == 1


def test_a_task_cleared_in_the_moment_of_its_deferral_goes_on_and_says_so(live_crew, store, task_log):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store)
    waiting = task.deferred()
    task.ti.try_number += 1

    with pytest.raises(TaskDeferred):
        run(deferrable=True).resume_execution(waiting.method_name, waiting.kwargs or {}, task.context)

    (kickoff,) = live_crew.kickoffs
    assert f"Execution {kickoff.kickoff_id}: kicked off by an earlier try, and gone on with." in task_log.text


def test_a_task_that_begins_needs_its_templates():
    task = Task(run)

    with pytest.raises(ZeroDivisionError):
        run(inputs={"topic": GONE}).render_template_fields(task.context)


@pytest.mark.parametrize("why", ["Trigger timeout", "Trigger failure"])
@pytest.mark.parametrize("with_store", [False, True])
def test_a_task_resumed_without_an_event_returns_the_result_if_there_is_one(live_crew, store, why, with_store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store if with_store else None)
    task.deferred()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert task.resume_without_event(why)["kickoff_id"] == live_crew.kickoffs[0].kickoff_id


@pytest.mark.parametrize("why", ["Trigger timeout", "Trigger failure"])
def test_a_task_resumed_without_an_event_fails_as_the_crew_did(live_crew, why):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True))
    task.deferred()
    failed = {"status": "error", "error": "out of credit"}
    live_crew.set_status(live_crew.kickoffs[0].kickoff_id, failed)

    with pytest.raises(ExecutionFailed, match="out of credit"):
        task.resume_without_event(why)


@pytest.mark.parametrize("down", [False, True], ids=["still going", "no answer"])
@pytest.mark.parametrize("with_store", [False, True])
@pytest.mark.parametrize(
    ("why", "error"), [("Trigger timeout", WaitedTooLong), ("Trigger failure", LostContact)], ids=str
)
def test_a_task_resumed_without_an_event_says_what_goes_on(
    live_crew, store, task_log, why, error, with_store, down
):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store if with_store else None, retries=1)
    task.deferred()
    if down:
        live_crew.faults.refuse()

    with pytest.raises(
        error if with_store else CrewTaskFailed,
        match="It is running, or waits, as far as is known, and is paid for",
    ) as caught:
        task.resume_without_event(why, traceback=["Traceback\n", "KeyError: 'x'\n"])

    assert isinstance(caught.value if with_store else caught.value.failure, error)
    assert live_crew.kickoffs[0].kickoff_id in str(caught.value)
    assert "KeyError: 'x'" in task_log.text


@pytest.mark.usefixtures("live_crew")
def test_a_task_resumed_without_an_event_and_without_its_kickoff_id_says_so():
    task = Task(lambda: run(deferrable=True))

    with pytest.raises(CrewTaskFailed, match="kickoff id of this task is not known any more"):
        task.resume_without_event("Trigger failure")
