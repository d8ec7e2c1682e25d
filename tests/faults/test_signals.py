"""The task is asked to end, or its execution_timeout is over, in the worker."""

from __future__ import annotations

import signal

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import Code

EIGHT_SECONDS = Code("datetime.timedelta(seconds=8)")
AT_ONCE = Scenario.model_validate({"inputs": [{"name": "topic"}], "tasks": [{"name": "writing_task"}]})
WHY_IT_RUNS_ON = (
    "Airflow 3 calls on_kill and lets the task run on, until it is done or killed (apache/airflow#73006). That "
    "loses nothing: the result is taken if it comes in time, and the next try goes on with the execution if not."
)


@row(
    "The task is asked to end (SIGTERM) before the kickoff is sent",
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "kickoff"),
    retries=1,
)
def test_asked_to_end_before_the_kickoff(scene):
    scene.crew.faults.hang(on="inputs", seconds=10)
    scene.start()
    scene.asked("inputs")
    scene.kill(number=signal.SIGTERM)
    scene.finish()


@row(
    "The task is asked to end (SIGTERM) while it waits for the answer to a kickoff",
    COMPLETED,
    ways=(*RUN, "kickoff"),
    why=WHY_IT_RUNS_ON,
    retries=1,
)
def test_asked_to_end_before_the_answer(scene):
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=10)
    scene.start()
    scene.execution()
    scene.kill(number=signal.SIGTERM)
    scene.finish()


@row(
    "The supervisor of the task is asked to end (SIGTERM) while the task waits for the answer to a kickoff",
    COMPLETED,
    why=WHY_IT_RUNS_ON,
    retries=1,
)
def test_supervisor_asked_to_end_before_the_answer(scene):
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=10)
    scene.start()
    scene.execution()
    scene.process().parent().send_signal(signal.SIGTERM)
    scene.finish()


@row(
    "The task is asked to end (SIGTERM) while it waits for the answer to a kickoff, and none comes",
    Ends("failed", "nothing", "goes on"),
    ways=("deferred", "kickoff"),
    retries=1,
)
def test_asked_to_end_before_no_answer(scene):
    scene.connect(extra={"request_timeout": 15})
    scene.start_without_an_answer()
    scene.kill(number=signal.SIGTERM)


@row(
    "The task is asked to end (SIGTERM) while it waits for the crew",
    COMPLETED,
    ways=("sync", "sensor poke"),
    why=WHY_IT_RUNS_ON,
    retries=1,
)
def test_asked_to_end_while_the_crew_works(scene):
    scene.start()
    scene.looked(2)
    scene.kill(number=signal.SIGTERM)
    scene.looked(2)
    scene.finish()


@row(
    "The supervisor of the task is asked to end (SIGTERM) while the task waits for the crew",
    COMPLETED,
    ways=("sync",),
    why=WHY_IT_RUNS_ON,
    retries=1,
)
def test_supervisor_asked_to_end_while_the_crew_works(scene):
    scene.start()
    scene.looked(2)
    scene.process().parent().send_signal(signal.SIGTERM)
    scene.looked(2)
    scene.finish()


@row(
    "The task is asked to end (SIGTERM) in the pause before a kickoff that was turned away (429) is sent again",
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "kickoff"),
    retries=1,
)
def test_asked_to_end_between_kickoffs(scene):
    scene.crew.faults.answer(429, on="kickoff", retry_after=10)
    scene.start()
    scene.answered("kickoff")
    scene.kill(number=signal.SIGTERM)
    scene.finish()


@row(
    "execution_timeout is over while the task waits for the answer to a kickoff",
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "kickoff"),
    retries=1,
    execution_timeout=EIGHT_SECONDS,
)
def test_timed_out_before_the_answer(scene):
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=15)
    scene.start()
    scene.finish()


@row(
    "execution_timeout is over while the task waits for the answer to a kickoff, and none comes",
    Ends("failed", "nothing", "goes on"),
    ways=("deferred", "kickoff"),
    retries=1,
    execution_timeout=EIGHT_SECONDS,
)
def test_timed_out_before_no_answer(scene):
    scene.connect(extra={"request_timeout": 15})
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()


@row(
    "execution_timeout is over in the pause before a kickoff that was turned away (429) is sent again",
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "kickoff"),
    scenario=AT_ONCE,
    retries=1,
    execution_timeout=EIGHT_SECONDS,
)
def test_timed_out_between_kickoffs(scene):
    scene.crew.faults.answer(429, on="kickoff", retry_after=60)
    scene.start()


@row(
    "execution_timeout is over while a retry asks after the execution of the try before",
    Ends("success", "the result", "has completed", tries=3),
    ways=("sync",),
    retries=2,
    execution_timeout=EIGHT_SECONDS,
)
def test_timed_out_while_a_retry_asks(scene):
    scene.crew.faults.hang(on="status", times=2)
    scene.start()
    scene.finish()
