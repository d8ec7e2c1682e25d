"""How CrewRunOperator waits: in the worker, in the triggerer, and how it ends without a result."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout

from airflow_provider_crew.client.errors import (
    Cost,
    ExecutionFailed,
    ExecutionUnknown,
    LostContact,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.durable.outcome import CrewTaskFailed, CrewTaskTimeout
from airflow_provider_crew.durable.wait import Wait
from airflow_provider_crew.links.crew import DASHBOARD_KEY, CrewDashboardLink
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from tests.integration.tasks import CONNECTION, FAILING, INPUTS, QUICK, SLOW, TOKEN, Task, fired, revived
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

# CrewDashboardLink does not use its ti_key.
NO_KEY: Any = None

RUNNING = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["in the worker", "deferred"])


@both_ways
def test_result_is_the_same_in_every_mode(live_crew, deferrable):
    tasks = tuple(task.model_copy(update={"seconds": 0.1}) for task in QUICK.tasks)
    live_crew.scenario = QUICK.model_copy(update={"output": '{"port": "Hamburg"}', "tasks": tasks})
    task = Task(lambda: run(deferrable=deferrable))

    result = task.run()

    (taken,) = live_crew.kickoffs
    assert result["kickoff_id"] == task.ti.xcoms["kickoff_id"] == taken.kickoff_id
    assert (result["output"], result["output_json"]) == ('{"port": "Hamburg"}', {"port": "Hamburg"})
    assert [(told["task_id"], told["agent"]) for told in result["tasks"]] == [
        ("research_task", "Researcher"),
        ("writing_task", "Writer"),
        ("review_task", "Editor"),
    ]
    assert result["execution_time"] == pytest.approx(0.3)
    assert (result["tasks_complete"], result["usage"]) == (True, None)
    assert set(result) == {
        *("kickoff_id", "output", "output_json", "tasks", "tasks_complete", "usage", "execution_time")
    }


@both_ways
def test_reserved_keys_are_renamed(live_crew, deferrable):
    odd = {"__id__": 1, "inner": [{"__classname__": "x", "__id__": {"__id__": 2}}], "__version__": 3}
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="a", seconds=0.3),), inputs=(), output=json.dumps(odd))

    assert Task(lambda: run(deferrable=deferrable)).run()["output_json"] == {
        "__id___": 1,
        "inner": [{"__classname___": "x", "__id___": {"__id___": 2}}],
        "__version__": 3,
    }


def test_execution_completed_at_first_poll_is_not_deferred(live_crew):
    operator = Task(lambda: run(deferrable=True)).begin()

    assert operator.execute({"ti": Task(run).ti})["output"].startswith("Briefing")
    assert live_crew.calls == ["inputs", "kickoff", "status"]


def test_progress_is_logged_once_before_and_after_a_deferral(live_crew, task_log):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True))
    waiting = task.deferred()
    (taken,) = live_crew.kickoffs
    done = {"status": "completed", "result": {"output": "Done."}, "execution_time": 250}
    live_crew.set_status(taken.kickoff_id, RUNNING | {"current_task": "b"}, RUNNING | {"current_task": "b"}, done)

    task.resume(waiting, asyncio.run(fired(revived(waiting.trigger))))

    lines = [line for line in task_log.text.splitlines() if taken.kickoff_id in line]
    assert [sum(name in line for line in lines) for name in ("writing_task", "2 of 3")] == [1, 1]


def test_serialized_trigger_is_plain_and_holds_no_secret(live_crew, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?user_bearer_token=user-token-3141")
    live_crew.faults.answer(401, body={"error": TOKEN, "message": f"Bearer {TOKEN} is wrong"}, on="status")

    began = time.monotonic()
    waiting = Task(lambda: run(deferrable=True, timeout=3600)).deferred()
    took = time.monotonic() - began

    path, stored = waiting.trigger.serialize()
    text = json.dumps(stored, allow_nan=False)
    assert path == "airflow_provider_crew.triggers.crew.CrewExecutionTrigger"
    assert TOKEN not in text
    assert "3141" not in text
    assert stored["memory"]["said_trouble"]
    # The trigger may begin again hours later, and one failed look then must not count for hours.
    assert stored["memory"]["troubles"] == {"rejected": None}
    assert revived(waiting.trigger).serialize() == (path, stored)
    assert waiting.kwargs == {"try_number": 1}
    assert 3600 + 60 - took <= waiting.timeout.total_seconds() <= 3600 + 60


@both_ways
def test_task_ends_at_its_execution_timeout(live_crew, deferrable):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=deferrable, execution_timeout=timedelta(seconds=0.3)))

    with pytest.raises((CrewTaskFailed, CrewTaskTimeout)) as caught:
        task.run()

    assert isinstance(caught.value.failure, WaitedTooLong)


@both_ways
@pytest.mark.parametrize("with_store", [False, True])
@pytest.mark.parametrize(("execution_timeout", "cut_short"), [(0.3, True), (3600, False)])
def test_timeout_is_retried_only_where_a_retry_reattaches(
    live_crew, store, deferrable, with_store, execution_timeout, cut_short
):
    live_crew.scenario = SLOW
    allowed = {"execution_timeout": timedelta(seconds=execution_timeout), "timeout": 3600 if cut_short else 0.3}
    task = Task(lambda: run(deferrable=deferrable, **allowed), store=store if with_store else None, retries=1)
    expected = CrewTaskFailed if not with_store else AirflowTaskTimeout if cut_short else WaitedTooLong

    with pytest.raises(expected) as caught:
        task.run()

    (taken,) = live_crew.kickoffs
    failure = getattr(caught.value, "failure", caught.value)
    assert isinstance(failure, WaitedTooLong)
    assert (failure.kickoff_id, failure.cost) == (taken.kickoff_id, Cost.RUNNING)
    assert with_store or "CrewExecutionSensor" in str(caught.value)


@pytest.mark.usefixtures("live_crew")
def test_own_deadline_comes_before_that_of_airflow():
    began = time.time()

    def deadline(time_limit: timedelta | None) -> float:
        given: Any = SimpleNamespace(timeout=24 * 3600, time_limit=time_limit)
        task: Any = SimpleNamespace(started_at=began)
        return Wait(task, given, give_up=lambda error: pytest.fail(str(error))).deadline()

    # Airflow 2 needs time to resume a deferred task.
    before = 60 if AIRFLOW < (3, 0) else 2
    assert deadline(timedelta(minutes=10)) == pytest.approx(began + 600 - before)
    assert deadline(timedelta(seconds=5)) == pytest.approx(began + 4.5)
    assert began <= deadline(None) - 24 * 3600 <= time.time()


def test_timeout_enforced_by_airflow_is_told_with_its_cost(live_crew, monkeypatch):
    def sleep(_: float) -> None:
        raise AirflowTaskTimeout("Timeout, PID: 7")

    live_crew.scenario = SLOW
    monkeypatch.setattr("airflow_provider_crew.hooks.polling.time.sleep", sleep)

    with pytest.raises(CrewTaskFailed, match="execution_timeout") as caught:
        Task(run).run()

    assert isinstance(caught.value.failure, WaitedTooLong)
    assert caught.value.cost is Cost.RUNNING
    assert caught.value.failure.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@both_ways
@pytest.mark.parametrize("with_store", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "retried_with_store"),
    [
        (503, LostContact, True),
        (401, WatchBroken, False),
        (400, WatchBroken, False),
        (404, ExecutionUnknown, False),
    ],
)
def test_broken_wait_is_retried_only_where_a_retry_reattaches(
    live_crew, store, monkeypatch, deferrable, with_store, status, error, retried_with_store
):
    monkeypatch.setattr("airflow_provider_crew.client.options.TOKEN_PATIENCE", 0.2)
    monkeypatch.setattr("airflow_provider_crew.client.options.NOT_FOUND_GRACE", 0.1)
    monkeypatch.setattr("airflow_provider_crew.client.watch._SOON", 0.1 / 6)
    live_crew.faults.answer(status, on="status", times=10_000)
    retried = with_store and retried_with_store
    task = Task(lambda: run(deferrable=deferrable, max_outage=0.2), store=store if with_store else None, retries=1)

    with pytest.raises(error if retried else CrewTaskFailed) as caught:
        task.run()

    assert isinstance(caught.value if retried else caught.value.failure, error)
    assert caught.value.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert not with_store or store.kickoff["end"] is None
    assert len(live_crew.kickoffs) == 1


@both_ways
@pytest.mark.parametrize("status", [500, 503])
def test_retry_after_an_outage_reattaches(live_crew, store, deferrable, status):
    live_crew.faults.answer(status, on="status", for_seconds=60)
    task = Task(lambda: run(deferrable=deferrable, max_outage=0.1), store=store, retries=1)

    with pytest.raises(LostContact, match=str(status)):
        task.run()

    live_crew.faults.clear()
    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


@both_ways
@pytest.mark.parametrize("with_store", [False, True])
def test_failed_crew_is_retried_with_another_execution(live_crew, store, deferrable, with_store):
    live_crew.scenario = FAILING.model_copy(
        update={"tasks": (ScenarioTask(name="writing_task", seconds=0.1, error="out of credit"),)}
    )
    task = Task(lambda: run(deferrable=deferrable), store=store if with_store else None, retries=1)

    for count in (1, 2):
        with pytest.raises(ExecutionFailed, match="out of credit") as caught:
            task.run()
        assert caught.value.error == "out of credit"
        assert (caught.value.kickoff_id, caught.value.cost) == (live_crew.kickoffs[-1].kickoff_id, Cost.ENDED)
        assert len(live_crew.kickoffs) == count


@pytest.mark.usefixtures("live_crew")
@both_ways
def test_without_a_store_the_result_is_pushed_at_once(deferrable):
    task = Task(lambda: run(deferrable=deferrable), retries=1)

    assert task.run() == task.ti.xcoms["return_value"]


@both_ways
def test_result_that_xcom_rejects_starts_no_other_execution(live_crew, deferrable):
    task = Task(lambda: run(deferrable=deferrable), retries=1, refused_xcoms=frozenset({"return_value"}))

    with pytest.raises(CrewTaskFailed, match="the XCom backend is full") as caught:
        task.run()

    assert isinstance(caught.value, AirflowFailException)
    assert caught.value.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("live_crew")
def test_kickoff_id_that_xcom_rejects_starts_no_other():
    task = Task(
        lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS),
        retries=1,
        refused_xcoms=frozenset({"return_value", "kickoff_id"}),
    )

    with pytest.raises(CrewTaskFailed, match="the XCom backend is full"):
        task.run()


@pytest.mark.usefixtures("live_crew")
@pytest.mark.parametrize(
    ("retries", "options", "with_store"),
    [(0, {}, False), (1, {"do_xcom_push": False}, False), (1, {}, True)],
    ids=["no retries", "no result wanted", "tries know of each other"],
)
def test_result_is_pushed_by_airflow_everywhere_else(store, retries, options, with_store):
    task = Task(lambda: run(**options), retries=retries, store=store if with_store else None)

    assert task.run()
    assert set(task.ti.xcoms) == {"kickoff_id"}


@both_ways
def test_short_outage_ends_no_wait(live_crew, deferrable):
    live_crew.faults.answer(503, on="status", times=3)
    live_crew.faults.reset(on="status", times=2)

    assert Task(lambda: run(deferrable=deferrable)).run()["output"]
    assert len(live_crew.kickoffs) == 1


@both_ways
def test_token_rotated_during_the_wait_is_used(live_crew, monkeypatch, deferrable, task_log):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=deferrable))

    def rotate(request: Any) -> None:
        if request.operation == "status" and live_crew.token == TOKEN:
            live_crew.rotate_token("the-next-token-0815")
            live_crew.finish(live_crew.kickoffs[0].kickoff_id)
        if request.status == 401:
            monkeypatch.setenv(CONNECTION, live_crew.connection_uri)

    live_crew.after = rotate

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert "token-0815" not in task_log.text
    assert TOKEN not in task_log.text


def test_link_points_to_the_page_of_the_crew(live_crew, monkeypatch, store):
    page = "https://app.example/crews/7"
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{urlencode({'dashboard_url': page})}")
    operator = run()
    task = Task(lambda: operator, store=store)
    task.run()

    assert task.ti.xcoms[DASHBOARD_KEY] == page
    assert next(iter(operator.operator_extra_links)).get_link(operator, ti_key=NO_KEY) == page
    task.run()
    assert task.ti.xcoms[DASHBOARD_KEY] == page, "the attempt that reattaches pushes it again"


def test_resumed_task_keeps_the_link(live_crew, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?dashboard_url=https%3A%2F%2Fapp.example%2F7")
    made: list[Any] = []

    def make() -> Any:
        made.append(run(deferrable=True))
        return made[-1]

    task = Task(make)
    waiting = task.deferred()
    live_crew.set_status(live_crew.kickoffs[0].kickoff_id, {"status": "completed", "result": "Done."})
    task.resume(waiting, asyncio.run(fired(revived(waiting.trigger))))

    assert task.ti.xcoms[DASHBOARD_KEY] == "https://app.example/7"
    links = [CrewDashboardLink().get_link(operator, ti_key=NO_KEY) for operator in made]
    assert links == ["https://app.example/7", "https://app.example/7"]
