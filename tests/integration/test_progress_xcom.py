"""The crew_progress XCom: pushed by the process that polls, without delaying the execution."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_crew.client.errors import ExecutionFailed
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from tests.integration.operators import both_ways, run
from tests.integration.tasks import (
    FAILING,
    SLOW,
    Task,
    TaskStateStore,
    WatchedService,
)

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
# State, completed tasks and current task at the first poll of the worker.
AT_FIRST = ("running", 0, "writing_task")
AT_SECOND = ("running", 1, "b")


def story(crew: WatchedService) -> list[tuple[Any, ...]]:
    """Return what was pushed, in order: state, completed tasks, current task."""
    return [(each["state"], each["completed"], each["current_task"]) for each in crew.xcoms.progress]


def after_the_first_look(crew: WatchedService, *answers: Any) -> None:
    """Let the crew answer these in turn after the first poll."""
    crew.scenario = SLOW
    crew.at_look(1, lambda: crew.set_status(crew.ids[0], *answers))


def once(crew: WatchedService, is_so: Callable[[], object], first: Any, *others: Any) -> None:
    """Let the crew answer this after the first poll until something is so, and then the others in turn."""
    after_the_first_look(crew, first)
    look_first = crew.after

    def note(request: ReceivedRequest) -> None:
        look_first(request)
        if request.operation == "status" and is_so():
            crew.set_status(crew.ids[0], *others)
            crew.after = lambda _: None

    crew.after = note


def fail(*, deferrable: bool) -> None:
    """Run a task whose execution fails."""
    with pytest.raises(ExecutionFailed):
        Task(lambda: run(deferrable=deferrable)).run()


@both_ways
def test_each_change_is_pushed_once(live_crew, deferrable):
    once(live_crew, lambda: AT_SECOND in story(live_crew), SECOND, *[SECOND] * 5, DONE)

    result = Task(lambda: run(deferrable=deferrable)).run()

    # The worker polls once before it defers, pushes that, and leaves the progress to the trigger.
    assert story(live_crew) == [AT_FIRST, AT_SECOND, ("completed", 2, None)]
    at_second, at_last = live_crew.xcoms.progress[-2:]
    # The result has no durations, so the times of the polls remain.
    assert [step["ended_at"] is None for step in at_second["steps"]][-1]
    assert None not in [step["ended_at"] for step in at_last["steps"]]
    assert (at_second["completed"], at_second["total"], at_second["current_task"]) == (1, 2, "b")
    assert at_second["kickoff_id"] == result["kickoff_id"]
    assert {each["try_number"] for each in live_crew.xcoms.progress} == {1}
    assert time.time() - 60 < at_second["started_at"] <= at_second["since"] <= at_second["polled_at"]
    assert {"dag_id": "research", "task_id": "crew", "run_id": "manual__2026-01-01", "map_index": -1} in (
        live_crew.xcoms.left_for
    )


def test_misfit_that_no_poll_saw_coming_is_the_end(live_crew):
    live_crew.scenario = Scenario(tasks=[ScenarioTask(name="writing_task", seconds=0)], dialect="deployed")
    with pytest.raises(CrewTaskFailed):
        Task(lambda: run(output_type=int)).run()

    assert live_crew.xcoms.progress[-1]["end"]["error"] == "InvalidOutput"


@both_ways
def test_tasks_with_the_same_reason_share_a_key(live_crew, deferrable):
    def reason(story: Scenario) -> tuple[str, dict[str, Any]]:
        live_crew.scenario = story
        task = Task(lambda: run(deferrable=deferrable), store=TaskStateStore())
        with pytest.raises(ExecutionFailed):
            task.run()
        (found,) = [item for item in task.ti.xcoms.items() if item[0].startswith("crew_reason_")]
        return found

    costly = FAILING.model_copy(update={"usage": {"total_tokens": 4_200}, "dialect": "deployed"})
    (key, end), (again, _) = reason(costly), reason(costly)
    too_long = (FAILING.tasks[0].model_copy(update={"error": "too long"}),)
    (other, _) = reason(FAILING.model_copy(update={"tasks": too_long}))

    assert key == again != other
    assert (end["cost"], end["tokens"], end["event"]) == ("ended", 4_200, "out of credit")


def test_trigger_pushes_seldom_and_keeps_the_last_change(live_crew, timing):
    timing(progress_pause=3600.0)
    once(live_crew, lambda: AT_SECOND in story(live_crew), SECOND, *[THIRD] * 10, FAILED)

    fail(deferrable=True)

    assert story(live_crew) == [AT_FIRST, AT_SECOND, ("failed", 1, "c")]


@both_ways
def test_unchanged_progress_is_pushed_again_when_old(live_crew, timing, deferrable):
    timing(progress_pause=-1.0, progress_refresh=-1.0, progress_refresh_each=-1.0)
    once(live_crew, lambda: story(live_crew).count(AT_SECOND) > 2, SECOND, FAILED)

    fail(deferrable=deferrable)

    *again, last = live_crew.xcoms.progress[1:]
    assert {each["since"] for each in again} == {again[0]["since"]}
    polled = [each["polled_at"] for each in again]
    assert polled == sorted(set(polled))
    assert last["state"] == "failed"
