"""The worker's processes are killed or signalled."""

from __future__ import annotations

import signal

from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, UNCERTAIN, Way, row
from tests.faults.scenes import Code, never_stopped

KILLED = Code("killed_once")
# A deferred sensor polls in the triggerer alone, if a kickoff task has just started the execution.
POKING: tuple[Way, ...] = ("sensor poke", "sensor reschedule")


@row(
    UNCERTAIN,
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    retries=3,
    cost="unknown",
)
def test_killed_before_the_answer(scene):
    """The worker is killed before it gets the answer to a kickoff that started an execution."""
    scene.start_and_hold("kickoff")
    scene.kill()


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, *POKING), core=("deferred",), before_3_3=POKING, retries=1)
def test_killed_during_a_poll(scene):
    """The worker is killed during the first poll."""
    scene.start_and_hold("status")
    scene.kill()
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, "kickoff", "sensor deferred"), retries=1, post_execute=KILLED)
def test_killed_before_the_result_is_stored(scene):
    """The worker is killed before the result, or the kickoff ID, is stored."""
    scene.start()
    scene.finish()


WHY_IT_RUNS_ON = (
    "Airflow calls `on_kill` and lets the task run until it ends or is killed (apache/airflow#73006). "
    "Nothing is lost: the task returns the result if it arrives in time, or else the next attempt reattaches."
)


@row(COMPLETED, ways=(*RUN, "kickoff"), why=WHY_IT_RUNS_ON, retries=1, cancel_on_kill=True)
def test_asked_to_end_before_the_answer(scene):
    """The task gets SIGTERM before the answer to its kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=10)
    scene.start()
    scene.execution()
    scene.kill(signal.SIGTERM)
    scene.finish()
    never_stopped(scene)
