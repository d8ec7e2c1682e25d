"""How CrewRunOperator waits: in the worker, in the triggerer, and how it ends without a result."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.task import task as kit
from tests.integration.operators import both_ways, in_every_way, run, run_task
from tests.integration.tasks import SLOW, Task, TaskInstance, fired, poked, revived, skip_where_pokes_forget

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
    assert caught.value.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("live_crew")
@both_ways
@pytest.mark.parametrize(
    ("retries", "options", "with_store", "at_once"),
    [
        (1, {}, False, True),
        (0, {}, False, False),
        (1, {"do_xcom_push": False}, False, False),
        (1, {}, True, False),
    ],
    ids=["a retry without a store", "no retries", "no result wanted", "attempts know of each other"],
)
def test_result_is_pushed_at_once_if_a_retry_would_lose_it(
    store, deferrable, retries, options, with_store, at_once
):
    task = Task(
        lambda: run(deferrable=deferrable, **options), retries=retries, store=store if with_store else None
    )

    result = task.run()

    assert task.ti.xcoms.get("return_value") == (result if at_once else None)


def test_running_execution_with_a_large_status_is_deferred_again(live_crew, store, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.triggers.watching.LARGEST_RESPONSE", 10)
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store)
    waiting = task.deferred()
    before = time.time()

    event = asyncio.run(fired(revived(waiting.trigger)))
    with pytest.raises(TaskDeferred) as again:
        task.resume(waiting, event)

    assert event["too_large"]
    assert again.value.trigger.rules["first_poll_at"] > before + 60
    assert again.value.trigger.rules["deadline"] == waiting.trigger.rules["deadline"]
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    assert task.resume(waiting, event)["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
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
@pytest.mark.parametrize("last", [{"progress": THREE}, {}], ids=["last answer has progress", "it has none"])
def test_result_has_what_polls_saw_of_a_deployed_crew(live_crew, store, kind, options, last):
    skip_where_pokes_forget(options)
    live_crew.scenario = SLOW.model_copy(update={"statuses": (*WORKING, ENDED | last)})

    result = poked(kind(live_crew, store=store, **options))

    assert [(task["task_id"], task["agent"]) for task in result["tasks"]] == [
        ("research_task", "Researcher"),
        ("writing_task", "Writer"),
        ("review_task", "Editor"),
    ]
    first, second, third = (task["execution_time"] for task in result["tasks"])
    assert first >= 0.5
    assert second is not None
    assert (result["execution_time"] == 60.0, (third or 0.0) > 50) == ((True, True) if last else (False, False))
    assert result["execution_time"] >= 0.5


@both_ways
@pytest.mark.parametrize("without", ["log_output", "small result"])
def test_result_that_the_task_reads_has_what_polls_saw(live_crew, store, deferrable, without):
    output = "x" * (64 * 1024 if without == "small result" else 1)
    live_crew.scenario = SLOW.model_copy(
        update={"statuses": (*WORKING, ENDED | {"progress": THREE, "result": output})}
    )

    result = run_task(live_crew, store=store, deferrable=deferrable, log_output=without != "log_output").run()

    assert [task["task_id"] for task in result["tasks"]][-1:] == ["review_task"]
    assert result["tasks"][-1]["agent"] == "Editor"
    assert result["tasks"][-1]["execution_time"] > 50
