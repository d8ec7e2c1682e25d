"""The crew's service fails while the crew runs."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, paid_again, row
from tests.faults.scenes import RETRY_LATER, waiting


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
    core=("deferred",),
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


@row(
    COMPLETED_IN_ATTEMPT_2,
    core=(),
    needs_store=("deferred",),
    scenario=LONG.model_copy(update={"output": 100_000 * "x"}),
    max_outage=25,  # on a busy machine, a triggerer may wait 10 seconds for the connection
    retries=1,
    pre_execute=RETRY_LATER,
)
def test_waiting_down_when_read(scene):
    """An outage longer than `max_outage` begins before a large result is read, and ends before the retry."""
    waiting(scene)
    execution = scene.execution()
    steps = iter([lambda: scene.crew.finish(execution), scene.crew.faults.refuse])
    scene.after_request = lambda _: next(steps, lambda: None)()
    scene.wait_for("running", tries=2)
    scene.crew.faults.clear()
    scene.now("retry")
