"""The worker's processes are killed."""

from __future__ import annotations

from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, RUN, SENSOR, UNCERTAIN, Ends, paid_again, row
from tests.faults.scenes import Code

KILLED = Code("killed_once")


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, "kickoff"), core=("deferred",), retries=1)
def test_killed_before_the_kickoff(scene):
    """The worker is killed before the kickoff is sent."""
    scene.start_and_hold("inputs")
    scene.kill()
    scene.finish()


@row(
    UNCERTAIN,
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    needs_store=(*RUN, "kickoff"),
    retries=3,
    cost="unknown",
)
def test_killed_before_the_answer(scene):
    """The worker is killed before it gets the answer to a kickoff that started an execution."""
    scene.start_without_an_answer()
    scene.kill()


@row(
    paid_again(tries=3),
    ways=("deferred", "kickoff"),
    retries=0,
    why=(
        "The first attempt left no error. The attempt after the first clear reports the uncertain kickoff "
        "and starts nothing."
    ),
    forgotten=("deferred", "kickoff"),
    cost="unknown",
)
def test_killed_before_the_answer_and_cleared_twice(scene):
    """A task without retries is killed before it gets the answer to a kickoff, and cleared twice."""
    scene.start_without_an_answer()
    scene.kill()
    scene.clear("failed")
    if not scene.forgets:
        scene.wait_for("failed", tries=2)
        assert len(scene.crew.kickoffs) == 1
        scene.clear("failed")
    scene.finish(2)


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, core=("deferred",), needs_store=RUN, retries=1)
def test_killed_before_the_deferral(scene):
    """The worker is killed between the kickoff and the deferral."""
    scene.start_and_hold("status")
    scene.kill()
    scene.finish()


@row(Ends("success", "the kickoff ID", "running", tries=2), ways=("kickoff",), retries=1, post_execute=KILLED)
def test_killed_before_the_kickoff_id_is_returned(scene):
    """The kickoff task is killed after the kickoff, before it returns the kickoff ID."""
    scene.start()


@row(COMPLETED_IN_ATTEMPT_2, ways=SENSOR, retries=1)
def test_killed_during_a_look(scene):
    """The worker is killed while it polls the execution."""
    scene.crew.faults.hang(on="status", seconds=60)
    scene.start()
    scene.asked("status")
    scene.kill()
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=("deferred", "sync", "sensor deferred"), retries=1, post_execute=KILLED)
def test_killed_before_the_result_is_stored(scene):
    """The worker is killed when the crew has completed, before the result is stored."""
    scene.start()
    scene.finish()
