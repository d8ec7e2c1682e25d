"""The task gets SIGTERM, or execution_timeout passes, in the worker."""

from __future__ import annotations

import signal

from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, row
from tests.faults.scenes import Code, never_stopped

EIGHT_SECONDS = Code("datetime.timedelta(seconds=8)")
WHY_IT_RUNS_ON = (
    "Airflow calls `on_kill` and lets the task run until it ends or is killed (apache/airflow#73006). "
    "Nothing is lost: the task returns the result if it arrives in time, or else the next attempt reattaches."
)


@row(COMPLETED, ways=(*RUN, "kickoff"), why=WHY_IT_RUNS_ON, retries=1)
def test_asked_to_end_before_the_answer(scene):
    """The task gets SIGTERM before the answer to its kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=10)
    scene.start()
    scene.execution()
    scene.kill(number=signal.SIGTERM)
    scene.finish()


@row(COMPLETED, ways=("sync", "sensor poke"), why=WHY_IT_RUNS_ON, retries=1, cancel_on_kill=True)
def test_asked_to_end_while_the_crew_works(scene):
    """The task gets SIGTERM while it waits for the crew."""
    scene.start()
    scene.looked(2)
    scene.kill(number=signal.SIGTERM)
    scene.looked(2)
    scene.finish()
    never_stopped(scene)


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, "kickoff"), retries=1, execution_timeout=EIGHT_SECONDS, cost="running")
def test_timed_out_before_the_answer(scene):
    """`execution_timeout` passes before the answer to a kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=15)
    scene.start()
    scene.finish()
