"""How a task or a sensor waits in the worker or the triggerer, how it resumes, and what its result has."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.client.errors import InvalidSettings, WaitedTooLong
from airflow_provider_crew.client.watch import Watch
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.task import task as kit
from tests.integration.operators import both_ways, in_every_mode, in_every_way, run, sensor
from tests.integration.tasks import (
    CONNECTION,
    SLOW,
    Task,
    TaskInstance,
    poked,
    sensors_remember,
    skip_where_pokes_forget,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


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
@pytest.mark.parametrize("kind", ["on_failure_callback", "on_retry_callback"])
def test_alert_of_a_task_that_fails_with_its_result_knows_the_end(live_crew, store, deferrable, kind, monkeypatch):
    shown: list[Any] = []
    own = {kind: lambda _: shown.append(live_crew.xcoms.progress[-1]["state"])}
    made = run(deferrable=deferrable, **own)
    monkeypatch.setattr(made, "post_execute", lambda _: None)  # a hook of the author has failed before
    live_crew.scenario = SLOW
    live_crew.at_look(2, lambda: live_crew.finish(live_crew.ids[0]))
    task = Task(lambda: made, store=store, retries=1)

    task.run()
    for callback in getattr(made, kind):
        callback(task.context)

    assert (shown, store.kickoff["end"]) == (["completed"], "completed")


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

    assert result["tasks"][-1]["task_id"] == "review_task"
    assert len(result["tasks"]) == 3 or "result" in last or not log_output
    assert result["execution_time"] == (60.0 if last else None)


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")
def test_request_shows_page_and_external_text_without_effect(live_crew, monkeypatch, timing):
    timing(not_found_grace=0.0, unknown_poll=0.0)
    page = "https://app.example/7"
    described = json.loads(live_crew.connection_json) | {"extra": {"dashboard_url": page}}
    monkeypatch.setenv(CONNECTION, json.dumps(described))
    at = {"state": "RUNNING", "progress": {"completed": 0, "current": "a`\n[Approve](https://evil.example)"}}
    live_crew.at_look(1, lambda: live_crew.set_status(live_crew.kickoffs[0].kickoff_id, at, {"state": "PAUSED"}))
    live_crew.scenario = SLOW.model_copy(update={"dialect": "deployed"})

    task = Task(lambda: run(deferrable=True))
    waiting = task.deferred()
    with pytest.raises(TaskDeferred):
        task.resume(waiting, task.event_of(waiting))

    ((_, body, _),) = live_crew.required_actions
    assert body.index(f"]({page})") < body.index("\n")
    assert "at `task 1, a' [Approve](https://evil.example)`." in body


RESCHEDULE: dict[str, Any] = {"mode": "reschedule"}

AT_WRITING = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}


def sensing(kickoff_id: Any, **options: Any) -> Task:
    store = options.pop("store", None)
    return Task(lambda: sensor(kickoff_id, **options), store=store)


@in_every_mode
def test_unusable_connection_is_read_again_until_it_is_fixed(live_crew, monkeypatch, mode):
    kickoff_id, note = live_crew.new_execution(), Watch.on_error

    def fix_connection(watch: Watch, error: Any) -> Any:
        monkeypatch.setenv(CONNECTION, live_crew.connection_uri)
        assert isinstance(error, InvalidSettings)
        return note(watch, error)

    monkeypatch.setenv(CONNECTION, "crew://nowhere")
    monkeypatch.setattr(Watch, "on_error", fix_connection)

    assert poked(sensing(kickoff_id, **mode))["kickoff_id"] == kickoff_id
    assert live_crew.requests.on("status")


@pytest.mark.parametrize("remembering", [True, False])
def test_next_poke_is_after_the_interval_or_at_the_deadline(live_crew, store, remembering):
    kickoff_id = live_crew.new_execution(SLOW)
    for timeout, seconds in [(3600, (54.0, 66.0)), (30, (0.0, 30.0))]:
        task = sensing(
            kickoff_id, **RESCHEDULE, poke_interval=60, timeout=timeout, store=store if remembering else None
        )
        now = datetime.now(UTC)

        with pytest.raises(AirflowRescheduleException) as caught:
            task.run()

        after, took = caught.value.reschedule_date, datetime.now(UTC) - now
        assert after.tzinfo is not None
        assert seconds[0] <= (after - now).total_seconds() <= seconds[1] + took.total_seconds()


@sensors_remember
def test_poke_without_news_stores_nothing(live_crew, store):
    kickoff_id = live_crew.new_execution(SLOW)
    later = AT_WRITING | {"current_task": "review_task"}
    live_crew.set_status(kickoff_id, *[AT_WRITING] * 3, *[later] * 3, {"status": "completed", "result": "x"})
    asked: list[str] = []
    store.breaks_at = asked.append

    poked(sensing(kickoff_id, **RESCHEDULE, store=store))

    assert (asked.count("get"), asked.count("set")) == (7, 2)


@pytest.mark.parametrize("deferrable", [False, True])
def test_decorated_function_is_called_once_for_the_inputs(live_crew, store, deferrable):
    calls, operators = [], []

    def brief(day: str, ti: Any = None) -> dict[str, Any]:
        calls.append(day)
        return {"topic": f"{{{{ news }}}} of {day}", "audience": ti.task_id}

    def make() -> Any:
        crew: Any = crew_task(task_id="crew", poll_interval=0.02, timeout=0.2, deferrable=deferrable)
        operators.append(crew(brief)("monday").operator)
        return operators[-1]

    live_crew.scenario = SLOW
    started = Task(make, store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        started.run()
    live_crew.finish(live_crew.ids[0])

    assert started.run()["kickoff_id"] == live_crew.ids[0]
    assert calls == ["monday"]
    assert live_crew.kickoffs[0].inputs == {"topic": "{{ news }} of monday", "audience": "crew"}
    # Airflow shows them as the rendered template.
    assert operators[0].inputs == live_crew.kickoffs[0].inputs
    assert operators[0].overwrite_rtif_after_execution
    assert not operators[0].multiple_outputs, "Airflow would split the result"
