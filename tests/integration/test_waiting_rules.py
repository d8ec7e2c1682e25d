"""How a task waits in the worker or the triggerer, and how it resumes: with a result, an error or no event."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout, TaskDeferred

from airflow_provider_crew.client.errors import (
    Cost,
    ExecutionFailed,
    ExecutionUnknown,
    InvalidKickoffId,
    LostContact,
    WaitedTooLong,
)
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed, CrewTaskTimeout
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.task import task as kit
from airflow_provider_crew.triggers.events import DEFERRAL, STOP_WAITING
from tests.integration.operators import both_ways, in_every_way, kickoff, run, run_task, sensor_task
from tests.integration.tasks import (
    ASKING,
    CONNECTION,
    INPUTS,
    QUICK,
    SLOW,
    TASK_STATES,
    TOKEN,
    Task,
    TaskInstance,
    poked,
    skip_where_pokes_forget,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


def test_execution_completed_at_first_poll_is_not_deferred(live_crew):
    operator = Task(lambda: run(deferrable=True)).begin()

    assert operator.execute({"ti": Task(run).ti})["output"].startswith("Briefing")
    assert live_crew.calls == ["inputs", "kickoff", "status"]


def test_trigger_may_outlast_the_deadline_by_a_minute(live_crew):
    live_crew.scenario = SLOW
    began = time.monotonic()
    waiting = Task(lambda: run(deferrable=True, timeout=3600)).deferred()

    assert 3600 + 60 - (time.monotonic() - began) <= waiting.timeout.total_seconds() <= 3600 + 60


@pytest.mark.usefixtures("live_crew")
def test_own_deadline_comes_before_that_of_airflow():
    began = time.time()

    def deadline(time_limit: timedelta | None, *, cancels: bool = False) -> float:
        options = kit.Options(crew_conn_id="crew", execution_timeout=time_limit, cancel_on_timeout=cancels)
        ti = TaskInstance(start_date=datetime.fromtimestamp(began, UTC))
        return kit.Task(options, {"ti": ti}, None).deadline()

    assert deadline(timedelta(minutes=10)) == pytest.approx(began + 600 - 2)
    assert deadline(timedelta(minutes=10), cancels=True) == pytest.approx(began + 600 - 10)
    assert deadline(timedelta(seconds=5)) == pytest.approx(began + 4.5)
    assert began <= deadline(None) - 24 * 3600 <= time.time()


@both_ways
def test_result_that_xcom_rejects_starts_no_other_execution(live_crew, deferrable):
    task = Task(lambda: run(deferrable=deferrable), retries=1, refused_xcoms=frozenset({"return_value"}))

    with pytest.raises(CrewTaskFailed, match="the XCom backend is full") as caught:
        task.run()

    assert isinstance(caught.value, AirflowFailException)
    assert caught.value.cost is Cost.ENDED
    assert caught.value.kickoff_id == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1


@both_ways
@pytest.mark.parametrize("kind", ["on_failure_callback", "on_retry_callback"])
def test_alert_of_a_result_that_airflow_cannot_store_knows_the_end(live_crew, store, deferrable, kind):
    shown: list[Any] = []
    own = {kind: lambda _: shown.append(live_crew.xcoms.progress[-1]["state"])}
    made = run(deferrable=deferrable, **own)
    live_crew.scenario = SLOW
    live_crew.at_look(2, lambda: live_crew.finish(live_crew.ids[0]))
    task = Task(lambda: made, store=store, retries=1)

    task.run()
    for callback in getattr(made, kind):
        callback(task.context)

    assert shown == ["completed"]


@pytest.mark.usefixtures("live_crew")
@both_ways
@pytest.mark.parametrize("retries", [1, 0])
@pytest.mark.parametrize("options", [{}, {"do_xcom_push": False}], ids=str)
@pytest.mark.parametrize("with_store", [False, True])
def test_result_is_pushed_at_once_if_a_retry_would_lose_it(store, deferrable, retries, options, with_store):
    kept = store if with_store else None
    task = Task(lambda: run(deferrable=deferrable, **options), retries=retries, store=kept)

    result = task.run()

    at_once = retries and not options and not with_store
    assert task.ti.xcoms.get("return_value") == (result if at_once else None)


def test_running_execution_with_a_large_status_is_deferred_again(live_crew, store, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.triggers.watching.LARGEST_RESPONSE", 10)
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store)
    waiting = task.deferred()
    before = time.time()

    event = task.event_of(waiting)
    with pytest.raises(TaskDeferred) as again:
        task.resume(waiting, event)

    assert event["too_large"]
    assert again.value.trigger.rules["first_poll_at"] > before + 60
    assert again.value.trigger.rules["deadline"] == waiting.trigger.rules["deadline"]
    live_crew.finish(live_crew.ids[0])
    assert task.resume(waiting, event)["kickoff_id"] == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1


def at_work(name: str, agent: str, done: int, last: str | None = None) -> dict[str, Any]:
    """Return the status of a deployed crew with three tasks."""
    progress = {"unit": "task", "completed": done, "total": 3, "current": name, "current_agent": agent}
    last_task = last and {"name": last, "output": f"Output of {last}"}
    return {"state": "RUNNING", "progress": progress | {"duration_seconds": 0.5}, "last_executed_task": last_task}


WORKING = (
    at_work("research_task", "Researcher", 0),
    at_work("writing_task", "Writer", 1, "research_task"),
    at_work("review_task", "Editor", 2, "writing_task"),
)
ENDED = {"state": "SUCCESS", "result": "Done.", "last_executed_task": {"name": "review_task", "output": "Done."}}
THREE = {"unit": "task", "completed": 3, "total": 3, "current": None, "duration_seconds": 60.0}


@in_every_way
@pytest.mark.parametrize(
    ("last", "log_output"),
    [
        ({"progress": THREE}, True),
        ({}, True),
        # The task reads these itself.
        ({"progress": THREE}, False),
        ({"progress": THREE, "result": "x" * 64 * 1024}, True),
    ],
    ids=["progress", "no progress", "not logged", "large"],
)
def test_result_has_what_polls_saw_of_a_deployed_crew(live_crew, store, kind, options, last, log_output):
    skip_where_pokes_forget(options)
    live_crew.scenario = SLOW.model_copy(update={"statuses": (*WORKING, ENDED | last)})

    result = poked(kind(live_crew, store=store, log_output=log_output, **options))

    assert [(task["task_id"], task["agent"]) for task in result["tasks"]][-1] == ("review_task", "Editor")
    assert len(result["tasks"]) == 3 or "result" in last or not log_output
    first, third = (result["tasks"][at]["execution_time"] or 0.0 for at in (0, -1))
    assert first >= 0.5
    assert (result["execution_time"] == 60.0, third > 50) == ((True, True) if last else (False, False))
    assert result["execution_time"] >= 0.5


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
    live_crew.at_look(1, lambda: live_crew.finish(live_crew.ids[0]))
    task = run_task(live_crew, store=store, deferrable=True, cancel_on_kill=True)

    task.event_of(task.deferred())

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
    with pytest.raises(TaskDeferred) as asked:
        task.resume(waiting, task.event_of(waiting))
    monkeypatch.delenv(CONNECTION)

    with pytest.raises(CrewTaskFailed):
        task.resume(asked.value, {"chosen_options": [STOP_WAITING], "responded_by_user": {"name": "ann"}})


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
    live_crew.finish(live_crew.ids[0])
    return waiting, task.event_of(waiting)


def test_completed_execution_that_is_forgotten_is_replaced_by_a_clear(live_crew, store, timing):
    timing(not_found_grace=0.05, unknown_poll=0.01)
    task = Task(lambda: run(deferrable=True, max_outage=0.2), store=store, retries=1)
    waiting, event = large_event(task, live_crew)
    live_crew.forget(live_crew.ids[0])

    with pytest.raises(CrewTaskFailed) as caught:
        task.resume(waiting, event)

    assert isinstance(caught.value.failure, ExecutionUnknown)
    assert (caught.value.cost, caught.value.failure.has_completed) == (Cost.ENDED, True)
    task.clear()
    live_crew.scenario = QUICK
    assert task.run()["kickoff_id"] == live_crew.ids[1]


def test_completed_execution_is_never_reported_as_running(live_crew, store, monkeypatch):
    def timeout(*_: Any) -> None:
        raise AirflowTaskTimeout("over")

    task = Task(lambda: run(deferrable=True), store=store, retries=1)
    waiting, event = large_event(task, live_crew)
    monkeypatch.setattr("airflow_provider_crew.task.record.Record.save_kickoff_id", timeout)

    with pytest.raises(CrewTaskTimeout) as caught:
        task.resume(waiting, event)

    assert (caught.value.cost, caught.value.kickoff_id) == (Cost.ENDED, live_crew.ids[0])


GONE = "{{ 1 // 0 }}"


@pytest.mark.parametrize("with_store", [False, True])
def test_resumed_task_needs_neither_templates_nor_connection(live_crew, store, with_store):
    live_crew.scenario = SLOW
    inputs, conn_ids = iter([INPUTS, {"topic": GONE}]), iter(["crew_default", "missing_{{ 'now' }}"])
    make = lambda: run(deferrable=True, inputs=next(inputs), crew_conn_id=next(conn_ids))  # noqa: E731
    task = Task(make, store=store if with_store else None, retries=1)
    waiting = task.deferred()
    live_crew.finish(live_crew.ids[0])
    event = Task(run).event_of(waiting)

    assert task.resume(waiting, event)["kickoff_id"] == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1


def decorated(*, inputs: Any, **options: Any) -> Any:
    decorator: Any = crew_task(task_id="crew", poll_interval=0.02, **options)
    return decorator(lambda topic: {"topic": topic})(**inputs).operator


@pytest.mark.parametrize("make", [kickoff, run, decorated])
def test_retried_task_does_not_need_its_templates(live_crew, store, make):
    task = Task(kickoff, store=store, retries=1)
    kickoff_id = task.begin().execute(task.context)
    task._make = lambda: make(inputs={"topic": GONE}, crew_conn_id="crew_{{ 'default' }}")

    assert kickoff_id in str(task.run())
    assert len(live_crew.kickoffs) == 1


def test_task_that_starts_needs_its_templates(live_crew, store):
    starting = Task(lambda: run(inputs={"topic": GONE}), store=store).begin()

    with pytest.raises(ZeroDivisionError):
        starting.execute(Task(run, store=store).context)

    assert not live_crew.kickoffs


@pytest.fixture
def deferred(live_crew, monkeypatch) -> tuple[Task, TaskDeferred]:
    """A task of an Airflow (3.1) that may resume a retry with the event of an earlier attempt."""
    monkeypatch.setattr("airflow_provider_crew.versions.KEEPS_OLD_EVENTS", True)
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), retries=1)
    return task, task.deferred()


@pytest.mark.parametrize("fails", [False, True])
def test_retry_takes_only_the_result_of_an_earlier_attempts_event(live_crew, deferred, fails):
    """The earlier attempt has failed, or was lost before it returned the result."""
    task, waiting = deferred
    end = {"status": "error", "error": "Out of credit"} if fails else {"status": "completed", "result": "Done."}
    live_crew.set_status(live_crew.ids[0], end)
    event = task.event_of(waiting)
    with pytest.raises(ExecutionFailed) if fails else nullcontext():
        task.resume(waiting, event)
    task.ti.try_number += 1

    if fails:
        with pytest.raises(TaskDeferred):
            task.resume(waiting, event)
    else:
        assert task.resume(waiting, event)["kickoff_id"] == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1 + fails


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
def test_resuming_without_an_event_ends_as_the_crew_did(live_crew, store, why, with_store):
    live_crew.scenario = SLOW
    refused = frozenset({"kickoff_id"} if with_store else ())
    task = Task(lambda: run(deferrable=True), store=store if with_store else None, refused_xcoms=refused)
    task.deferred()
    live_crew.set_status(live_crew.ids[0], {"status": "error", "error": "out of credit"})
    with pytest.raises(ExecutionFailed, match="out of credit"):
        task.resume_without_event(why)
    live_crew.set_status(live_crew.ids[0], {"status": "completed", "result": "Done."})

    assert task.resume_without_event(why)["kickoff_id"] == live_crew.ids[0]


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
    assert caught.value.kickoff_id == live_crew.ids[0]
    assert "KeyError: 'x'" in task_log.text


def test_record_unreadable_on_resuming_serves_the_next_attempt(live_crew, store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store, retries=1)
    task.deferred()
    store.breaks_at = lambda name: name == "get"
    with pytest.raises(WaitedTooLong):
        task.resume_without_event("Trigger timeout")

    store.breaks_at = lambda _: False
    live_crew.finish(live_crew.ids[0])
    assert task.run()["kickoff_id"] == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("live_crew")
def test_resuming_without_a_kickoff_id_fails():
    task = Task(lambda: run(deferrable=True))

    with pytest.raises(CrewTaskFailed) as caught:
        task.resume_without_event("Trigger failure")

    assert isinstance(caught.value.failure, InvalidKickoffId)
    assert caught.value.cost is Cost.RUNNING
