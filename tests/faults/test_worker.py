"""The worker's processes are killed."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, row
from tests.faults.scenes import Code

LARGE = Scenario.model_validate(LONG.model_dump() | {"output": "Briefing: {topic} " + 70_000 * "and so on, "})

UNCERTAIN = Ends("failed", "nothing", "running", tries=2)

KILLED = Code("killed_once")


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, "kickoff"), core=("deferred",), retries=1)
def test_killed_before_the_kickoff(scene):
    """The worker is killed before the kickoff is sent."""
    scene.start_and_hold("inputs")
    scene.kill()
    scene.finish()


@row(UNCERTAIN, ways=(*RUN, "kickoff"), core=("deferred", "kickoff"), needs_store=(*RUN, "kickoff"), retries=3)
def test_killed_before_the_answer(scene):
    """The worker is killed before it gets the answer to a kickoff that started an execution."""
    scene.start_without_an_answer()
    scene.kill()


@row(UNCERTAIN, retries=3)
def test_killed_with_its_supervisor_before_the_answer(scene):
    """Worker and supervisor are killed before they get the answer to a kickoff."""
    scene.start_without_an_answer()
    scene.kill(with_supervisor=True)


@row(
    Ends("success", "the result", "completed", kickoffs=2, tries=3),
    ways=("deferred", "kickoff"),
    retries=0,
    why=(
        "The first attempt left no error. The attempt after the first clear reports the uncertain kickoff "
        "and starts nothing."
    ),
    forgotten=("deferred", "kickoff"),
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


@row(UNCERTAIN, ways=("deferred", "kickoff"), retries=1)
def test_killed_with_its_supervisor_with_the_answer(scene):
    """Task and supervisor are killed right after the crew answered."""
    process, supervisor = scene.frozen_with_the_answer()
    process.kill()
    supervisor.kill()


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


@row(COMPLETED_IN_ATTEMPT_2, ways=("deferred", "sensor deferred"), scenario=LARGE, retries=1)
def test_killed_while_it_reads_a_large_result(scene):
    """The worker is killed while it reads a large result."""
    scene.start(until="deferred")
    scene.finish()
    scene.looked()
    # The trigger has seen the end, so the task sends the next poll.
    scene.crew.faults.hang(on="status", seconds=60)
    asked = len(scene.crew.requests.on("status"))
    scene.asked("status", asked + 1)
    scene.kill()


@row(COMPLETED_IN_ATTEMPT_2, ways=("deferred", "sync", "sensor deferred"), retries=1, post_execute=KILLED)
def test_killed_before_the_result_is_stored(scene):
    """The worker is killed when the crew has completed, before the result is stored."""
    scene.start()
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=("deferred", "sync"), retries=0, post_execute=KILLED, forgotten=RUN)
def test_killed_before_the_result_is_stored_and_cleared(scene):
    """A task without retries is killed when the crew has completed, before the result is stored, and cleared."""
    scene.start()
    scene.finish()
    scene.clear("failed")
