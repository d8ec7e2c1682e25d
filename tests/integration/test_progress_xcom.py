"""The crew_progress XCom: pushed by the process that polls, without delaying the execution."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException

from airflow_provider_crew.client.errors import ExecutionFailed
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.triggers.events import read_event
from tests.integration.operators import both_ways, run
from tests.integration.tasks import INPUTS, SLOW, Task, WatchedService, fired

pytest_plugins = ["tests.integration.task_fixtures"]

SECOND = {"status": "running", "current_task": "b", "progress": {"completed_tasks": 1, "total_tasks": 2}}
THIRD = {"status": "running", "current_task": "c", "progress": {"completed_tasks": 1, "total_tasks": 2}}
DONE = {
    "status": "completed",
    "result": {"output": "Done.", "tasks": [{"task_id": name, "output": name * 9} for name in "ab"]},
    "execution_time": 250,
}
FAILED = {"status": "error", "error": "out of credit"}
# A deployed crew, which tells the last task alone, and not how it went on when it has failed.
OUTPUT_OF_A = {
    "state": "RUNNING",
    "status": "Task is Running",
    "last_executed_task": {"name": "a", "output": "A."},
}
BROKE = {"state": "FAILED", "status": "out of credit"}
# State, completed tasks and current task at the first poll of the worker.
AT_FIRST = ("running", 0, "writing_task")
AT_SECOND = ("running", 1, "b")


def story(crew: WatchedService) -> list[tuple[Any, ...]]:
    """Return what was pushed, in order: state, completed tasks, current task."""
    return [(each["state"], each["completed"], each["current_task"]) for each in crew.xcoms.progress]


def after_the_first_look(crew: WatchedService, *answers: Any) -> None:
    """Let the crew answer these in turn after the first poll."""
    crew.scenario = SLOW
    crew.at_look(1, lambda: crew.set_status(crew.kickoffs[0].kickoff_id, *answers))


@pytest.fixture
def backend(monkeypatch):
    """A custom XCom backend that calls ``before`` first."""
    from airflow.sdk.bases.xcom import BaseXCom

    class Own(BaseXCom):
        before: Any = staticmethod(lambda: None)
        key: str = ""

        @staticmethod
        def serialize_value(value: Any, *, key: str | None = None, **of: Any) -> Any:
            assert of.keys() == {"dag_id", "task_id", "run_id", "map_index"}
            Own.before()
            return BaseXCom.serialize_value(value, key=key, **of)

    monkeypatch.setattr("airflow.sdk.execution_time.xcom.XCom", Own)
    return Own


class Stuck(threading.Event):
    """Holds each thread that encodes, until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []

    def hold(self) -> None:
        self.threads.append(threading.current_thread())
        self.wait()


@pytest.fixture
def stuck(backend):
    """A custom backend that hangs until this event is set."""
    released = Stuck()
    backend.before = staticmethod(released.hold)
    yield released
    released.set()


async def until(there: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not there():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.01)


@both_ways
def test_each_change_is_pushed_once(live_crew, deferrable):
    after_the_first_look(live_crew, SECOND, SECOND, *[SECOND] * 20, DONE)

    result = Task(lambda: run(deferrable=deferrable)).run()

    # The worker polls once before it defers, and leaves the progress to the trigger.
    assert story(live_crew) == [*[AT_FIRST] * (not deferrable), AT_SECOND, ("completed", 2, None)]
    at_second, at_last = live_crew.xcoms.progress[-2:]
    # The result has no durations, so the times of the polls remain.
    assert [step["ended_at"] is None for step in at_second["steps"]][-1]
    assert None not in [step["ended_at"] for step in at_last["steps"]]
    assert (at_second["completed"], at_second["total"], at_second["current_task"]) == (1, 2, "b")
    assert at_second["kickoff_id"] == result["kickoff_id"]
    assert time.time() - 60 < at_second["started_at"] <= at_second["since"] <= at_second["polled_at"]
    assert {"dag_id": "research", "task_id": "crew", "run_id": "manual__2026-01-01", "map_index": -1} in (
        live_crew.xcoms.left_for
    )


@both_ways
def test_failure_keeps_the_outputs_so_far(live_crew, deferrable):
    after_the_first_look(live_crew, *[OUTPUT_OF_A] * 5, BROKE)

    with pytest.raises(ExecutionFailed):
        Task(lambda: run(deferrable=deferrable)).run()

    end = live_crew.xcoms.progress[-1]
    assert (end["state"], [task["output"] for task in end["tasks"]]) == ("failed", ["A."])
    assert end["end"]


@pytest.mark.parametrize(
    ("status", "cost", "error"), [(422, "none", "Rejected"), (504, "unknown", "UncertainKickoff")]
)
def test_failed_kickoff_pushes_its_reason(live_crew, status, cost, error):
    live_crew.faults.answer(status, on="kickoff")
    with pytest.raises(CrewTaskFailed):
        Task(run).run()

    (known,) = live_crew.xcoms.progress
    assert (known["kickoff_id"], known["state"]) == ("", cost)
    assert (known["end"]["error"], known["end"]["cost"]) == (error, cost)


@pytest.mark.parametrize("remembering", [False, True])
def test_each_poke_of_a_rescheduled_sensor_pushes_it_again(live_crew, request, remembering):
    live_crew.scenario = SLOW
    kickoff_id = live_crew.take(INPUTS, None, {})
    store = request.getfixturevalue("store") if remembering else None
    options = {"task_id": "crew", "kickoff_id": kickoff_id, "mode": "reschedule", "poke_interval": 0.02}
    task = Task(lambda: CrewExecutionSensor(**options), store=store)

    for _ in range(3):
        with pytest.raises(AirflowRescheduleException):
            task.run()
        task.ti.try_number -= 1
    live_crew.set_status(kickoff_id, DONE)
    task.run()

    assert story(live_crew) == [*[AT_FIRST] * 3, ("completed", 2, None)]


def test_trigger_pushes_seldom_and_keeps_the_last_change(live_crew, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.triggers.progress.PAUSE", 3600.0)
    after_the_first_look(live_crew, *[SECOND] * 10, *[THIRD] * 10, FAILED)

    with pytest.raises(ExecutionFailed):
        Task(lambda: run(deferrable=True)).run()

    assert story(live_crew) == [AT_SECOND, ("failed", 1, "c")]


@pytest.mark.parametrize(("pause", "seconds"), [("_PAUSE_FOR_ALL", 0.3), ("_PAUSE_FOR_EACH", 0.1)])
async def test_all_triggers_together_push_one_and_then_pause(live_crew, monkeypatch, pause, seconds):
    monkeypatch.setattr(f"airflow_provider_crew.triggers.progress.{pause}", seconds)
    live_crew.scenario = SLOW

    running = [asyncio.create_task(fired(trigger_of(live_crew, map_index=number))) for number in range(3)]
    await until(lambda: live_crew.xcoms.left_for)
    began = time.monotonic()
    await until(lambda: len(live_crew.xcoms.left_for) == 3)

    assert time.monotonic() - began > 0.55
    assert {of["map_index"] for of in live_crew.xcoms.left_for} == set(range(3))
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def trigger_of(crew: WatchedService, *, seconds: float = 60, **instance: Any) -> Any:
    """Return the trigger of a task that deferred before its first poll."""
    from airflow_provider_crew.client.watch import WatchRules
    from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
    from tests.integration.tasks import TaskInstance

    rules = asdict(WatchRules(deadline=time.time() + seconds, poll_interval=0.02))
    trigger = CrewExecutionTrigger(crew.take(INPUTS, None, {}), "crew_default", rules=rules)
    trigger.task_instance = TaskInstance(**instance)  # type: ignore[assignment]
    return trigger


async def test_stuck_backend_delays_no_polls_and_no_events(live_crew, stuck):
    live_crew.scenario = SLOW
    running = [asyncio.create_task(fired(trigger_of(live_crew))) for _ in range(40)]
    await until(lambda: stuck.threads)
    polls = len(live_crew.calls)
    await until(lambda: len(live_crew.calls) > polls + 5 * len(running))
    assert len(stuck.threads) == 1

    for taken in live_crew.kickoffs:
        live_crew.finish(taken.kickoff_id)

    events = await asyncio.wait_for(asyncio.gather(*running), 60)
    assert all(read_event(event).result for event in events)
    assert len(stuck.threads) == 1
    # The other threads of the default pool are there for whoever asks.
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5) == "free"
    assert live_crew.xcoms.progress == []
    stuck.set()  # the event loop waits for its threads


async def test_backend_that_was_stuck_pushes_the_newest_progress(live_crew, stuck):
    live_crew.scenario = SLOW
    running = asyncio.create_task(fired(trigger_of(live_crew)))
    await until(lambda: stuck.threads)
    live_crew.set_status(live_crew.kickoffs[0].kickoff_id, SECOND)
    polls = len(live_crew.calls)
    await until(lambda: len(live_crew.calls) > polls + 5)
    stuck.set()
    await until(lambda: len(live_crew.xcoms.progress) == 2)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert story(live_crew) == [AT_FIRST, AT_SECOND]


def test_failing_backend_is_logged_once_per_triggerer(live_crew, backend, monkeypatch):
    def fail() -> None:
        raise OSError("the bucket is gone")

    warnings: list[str] = []
    monkeypatch.setattr("airflow_provider_crew.triggers.progress.warn", lambda _, text: warnings.append(text))
    backend.before = staticmethod(fail)
    after_the_first_look(live_crew, *[SECOND] * 5, *[THIRD] * 5, DONE)

    assert Task(lambda: run(deferrable=True)).run()["output"] == "Done."

    assert len(warnings) == 1


def test_progress_xcom_false_stops_pushes_of_triggers(live_crew, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CREW__PROGRESS_XCOM", "False")
    after_the_first_look(live_crew, *[SECOND] * 10, FAILED)

    with pytest.raises(ExecutionFailed):
        Task(lambda: run(deferrable=True)).run()

    assert [each["state"] for each in live_crew.xcoms.progress] == ["failed"]


@pytest.mark.parametrize(
    "progress", ["{}", "[]", "no JSON", '{"tasks": 7}', '{"version": 2, "total": "x"}', 7, None]
)
def test_event_with_progress_of_another_version_is_accepted(live_crew, progress):
    after_the_first_look(live_crew, *[SECOND] * 5, DONE)
    task = Task(lambda: run(deferrable=True))
    waiting = task.deferred()
    event = asyncio.run(fired(task.revived(waiting)))

    assert task.resume(waiting, event | {"progress": progress})["output"] == "Done."


def test_unreadable_setting_fails_no_wait(live_crew, monkeypatch, task_log):
    monkeypatch.setenv("AIRFLOW__CREW__PROGRESS_XCOM", "perhaps")
    after_the_first_look(live_crew, *[SECOND] * 10, DONE)

    assert Task(lambda: run(deferrable=True)).run()["output"] == "Done."

    assert "progress_xcom" in task_log.warnings
