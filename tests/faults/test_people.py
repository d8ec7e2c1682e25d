"""The crew waits for human input, and answers NOT FOUND."""

from __future__ import annotations

from airflow_provider_crew.local import ScenarioTask
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, row

LIVE = LONG.model_copy(update={"dialect": "deployed"})
ASKS = LIVE.model_copy(
    update={
        "tasks": (
            ScenarioTask(name="research_task", agent="Researcher", human_input=True, output="Notes on {topic}"),
            ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="Briefing: {topic}"),
        )
    }
)


def asked(scene) -> None:
    """Start a run, and return when the crew waits for human input and the task has polled since."""
    if scene.way.startswith("sensor"):
        scene.crew.scenario = LIVE  # a sensor has to see the execution first
    scene.start()
    scene.execution()
    if scene.way.startswith("sensor"):
        if scene.way == "sensor deferred":
            scene.wait_for("deferred")
        scene.looked()
        scene.waits_for_a_person()
    scene.looked()


def answered(scene, number: int = 1) -> None:
    """Answer the crew, and let it complete at once."""
    if scene.way.startswith("sensor"):
        scene.goes_on(number)
    else:
        scene.crew.approve(scene.execution(number))
    scene.finish(number)


@row(
    COMPLETED,
    ways=(*RUN, *SENSOR),
    core=("deferred", "sensor reschedule"),
    scenario=ASKS,
    needs_store=("sensor reschedule",),
)
def test_person_answers(scene):
    """A crew waits for human input, and gets it."""
    asked(scene)
    scene.looked()
    answered(scene)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync", "kickoff", "sensor poke"),
    core=("sync", "kickoff"),
    scenario=ASKS,
    retries=1,
    needs_store=("sync", "kickoff"),
)
def test_person_and_a_killed_worker(scene):
    """The worker is killed while the crew waits for human input."""
    if scene.way == "kickoff":
        process, supervisor = scene.frozen_with_the_answer()
        process.kill()
        supervisor.resume()
        scene.wait_for("success", tries=2)
    else:
        asked(scene)
        scene.kill()
        scene.wait_for("running", tries=2)
        scene.looked()
    answered(scene)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "kickoff", *SENSOR),
    core=("deferred", "kickoff"),
    scenario=ASKS,
    forgotten=("deferred", "kickoff"),
    needs_store=(*RUN, "kickoff"),
)
def test_person_and_a_clear(scene):
    """The task is cleared while the crew waits for human input."""
    if scene.way == "kickoff":
        scene.start()
        scene.clear("success")
        scene.wait_for("success", tries=2)
    else:
        asked(scene)
        scene.run.clear(scene.task_id)
        scene.looked()
    answered(scene)


@row(COMPLETED, ways=("deferred", "sensor deferred"), alone=True, scenario=ASKS)
def test_person_and_a_new_triggerer(scene):
    """The triggerer is killed while the crew waits for human input, and another takes over."""
    asked(scene)
    triggerer = scene.airflow.processes["triggerer"]
    triggerer.kill()
    triggerer.start()
    scene.looked()
    answered(scene)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "sensor deferred"),
    core=("deferred",),
    needs_store=RUN,
    scenario=ASKS,
    max_outage=20,
    forgotten=RUN,
)
def test_person_takes_too_long_and_a_clear(scene):
    """A crew waits for human input longer than `max_outage`, and the task is cleared before the answer."""
    asked(scene)
    scene.clear("failed")
    scene.looked()
    answered(scene)


@row(
    Ends("success", "the result", "completed", kickoffs=2, tries=2),
    ways=RUN,
    core=("deferred",),
    needs_store=RUN,
    scenario=ASKS,
    max_outage=15,
)
def test_person_gives_the_execution_up(scene):
    """An unknown execution is given up: `crew_kickoff` is deleted, and the task is cleared."""
    asked(scene)
    scene.wait_for("failed")
    scene.forget_kickoff()
    scene.clear("failed")
    answered(scene, 2)
