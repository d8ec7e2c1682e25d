"""The crew's service fails while the crew runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_crew.local.dialects.documented import Completed, Result
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, paid_again, row
from tests.faults.scenes import RETRY_LATER

# An event carries no result of that size, so the task reads it.
LARGE = "x" * 100_000


def waiting(scene) -> None:
    """Start a run, and return when the task has started an execution, polled and waits."""
    scene.start()
    if scene.way in {"deferred", "sensor deferred"}:
        scene.wait_for("deferred")
    scene.looked()


def done_and_then(scene, harm: Callable[[], None]) -> None:
    """Let the crew complete after a poll, and cause the fault after the next one."""
    execution = scene.execution()
    steps = iter([lambda: scene.crew.finish(execution), harm])
    scene.after_request = lambda _: next(steps, lambda: None)()


def completed(output: str = "Briefing") -> dict[str, Any]:
    return Completed(result=Result(output=output, tasks=[]), execution_time=1).model_dump()


@row(COMPLETED, ways=("deferred", "sync", *SENSOR))
def test_waiting_down(scene):
    """An outage is shorter than `max_outage`."""
    waiting(scene)
    scene.crew.faults.refuse()
    scene.in_trouble()
    scene.crew.faults.clear()
    scene.looked()
    scene.finish()


@row(
    Ends("success", "the result", "completed", tries=3),
    ways=RUN,
    core=True,
    needs_store=RUN,
    max_outage=8,
    retries=1,
    forgotten={"deferred": paid_again(tries=3), "sync": paid_again(tries=3)},
)
def test_waiting_down_too_long(scene):
    """An outage lasts longer than `max_outage` in every attempt, and the task is cleared after it."""
    waiting(scene)
    scene.progress(current_task="writing_task")
    scene.crew.faults.refuse()
    scene.wait_until_over()
    scene.crew.finish(scene.execution())
    scene.crew.faults.clear()
    scene.run.clear(scene.task_id)


@row(COMPLETED_IN_ATTEMPT_2, ways=SENSOR, max_outage=8, retries=1)
def test_waiting_down_until_the_retry(scene):
    """An outage lasts longer than `max_outage`, and ends before the retry."""
    waiting(scene)
    scene.crew.faults.refuse()
    scene.wait_for("up_for_retry")
    scene.crew.faults.clear()
    scene.finish()


@row(COMPLETED, ways=("deferred", "sync", "sensor reschedule"))
def test_waiting_unknown_for_a_moment(scene):
    """The crew briefly answers NOT FOUND."""
    waiting(scene)
    scene.progress(current_task="writing_task")
    scene.crew.faults.answer(404, on="status", times=2)
    scene.looked(2)
    scene.finish()


@row(
    Ends("failed", "only the kickoff ID", "unknown"),
    ways=("deferred", "sensor deferred"),
    max_outage=20,
    retries=2,
)
def test_waiting_forgotten(scene):
    """The crew has lost the execution."""
    waiting(scene)
    scene.crew.forget(scene.execution())


@row(Ends("success", "the result", "unknown"))
def test_waiting_forgotten_when_completed(scene):
    """The crew loses an execution right after a poll returned its result."""
    waiting(scene)
    done_and_then(scene, lambda: scene.crew.forget(scene.execution()))


@row(
    Ends("failed", "only the kickoff ID", "unknown"),
    scenario=LONG.model_copy(update={"output": LARGE}),
    max_outage=20,
    retries=2,
)
def test_waiting_forgotten_before_it_is_read(scene):
    """The crew loses a completed execution before its large result is read."""
    waiting(scene)
    done_and_then(scene, lambda: scene.crew.forget(scene.execution()))


@row(COMPLETED, scenario=LONG.model_copy(update={"output": LARGE}))
def test_waiting_unknown_when_read(scene):
    """The crew briefly answers NOT FOUND when a large result is read."""
    waiting(scene)
    done_and_then(scene, lambda: scene.crew.faults.answer(404, on="status", times=2))


@row(
    COMPLETED_IN_ATTEMPT_2,
    core=True,
    needs_store=("deferred",),
    scenario=LONG.model_copy(update={"output": LARGE}),
    max_outage=25,  # on a busy machine, a triggerer may wait 10 seconds for the connection
    retries=1,
    pre_execute=RETRY_LATER,
)
def test_waiting_down_when_read(scene):
    """An outage longer than `max_outage` begins before a large result is read, and ends before the retry."""
    waiting(scene)
    done_and_then(scene, scene.crew.faults.refuse)
    scene.wait_for("running", tries=2)
    scene.crew.faults.clear()
    scene.now("retry")


@row(COMPLETED, scenario=LONG.model_copy(update={"output": LARGE}))
def test_waiting_running_again(scene):
    """The crew reports a completed execution as running when its large result is read."""
    waiting(scene)
    execution = scene.execution()
    running = {"status": "running"}
    scene.crew.set_status(execution, completed(LARGE), running, running, completed(LARGE))
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output"] == LARGE


@row(Ends("failed", "only the kickoff ID", "running"), ways=("deferred", "sensor deferred"), timeout=30, retries=0)
def test_waiting_unknown_word_for_ever(scene):
    """The crew reports an unknown status until `timeout` passes."""
    scene.start()
    scene.crew.set_status(scene.execution(), {"status": "awaiting_human_feedback"})
