"""The crew waits for human input, and answers NOT FOUND."""

from __future__ import annotations

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, paid_again, row

LIVE = LONG.model_copy(update={"dialect": "deployed"})
ASKS = LIVE.model_copy(
    update={
        "tasks": (
            ScenarioTask(name="research_task", agent="Researcher", human_input=True, output="Notes on {topic}"),
            ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="Briefing: {topic}"),
        )
    }
)
FLOW = ASKS.model_copy(update={"kind": "flow"})


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


@row(COMPLETED, ways=(*RUN, *SENSOR), core=True, scenario=ASKS, needs_store=("sensor reschedule",))
def test_person_answers(scene):
    """A crew waits for human input, and gets it."""
    asked(scene)
    scene.looked()
    answered(scene)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync", "kickoff", "sensor poke"),
    core=True,
    scenario=ASKS,
    retries=1,
    needs_store=("sync", "kickoff"),
)
def test_person_and_a_killed_worker(scene):
    """The worker is killed while the crew waits for human input."""
    if scene.way == "kickoff":
        held = scene.hold("kickoff")
        scene.start()
        scene.execution()
        process, supervisor = scene.frozen()
        held.release()
        scene.answered("kickoff")
        scene.wait_until_idle(process)
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
    core=True,
    scenario=ASKS,
    forgotten={"deferred": paid_again(), "kickoff": paid_again()},
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
    Ends("failed", "only the kickoff ID", "running"),
    ways=(*RUN, "sensor deferred", "sensor poke"),
    scenario=ASKS,
    max_outage=15,
    retries=2,
)
def test_person_takes_too_long(scene):
    """A crew waits for human input longer than `max_outage`."""
    asked(scene)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "sensor deferred"),
    core=True,
    needs_store=RUN,
    scenario=ASKS,
    max_outage=20,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
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
    core=True,
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


@row(Ends("success", "the result", "completed", kickoffs=6, tries=2), mapped=3, scenario=ASKS, max_outage=15)
def test_people_give_mapped_executions_up(scene):
    """Three mapped tasks wait for human input longer than `max_outage`, and all are given up and cleared."""
    scene.start()
    scene.wait_for_all("failed")
    for index in range(scene.mapped):
        scene.forget_kickoff(index)
    scene.wait_until_over()
    scene.run.clear(scene.task_id)
    for number in range(4, 7):
        scene.crew.finish(scene.execution(number))


@row(COMPLETED, ways=(*RUN, *SENSOR), scenario=ASKS, max_outage=5, human_input=True)
def test_person_takes_long_and_may(scene):
    """A crew waits for human input longer than `max_outage`, with `human_input=True`."""
    asked(scene)
    scene.looked_after(8)
    answered(scene)


@row(Ends("failed", "nothing", "unknown"), ways=SENSOR, scenario=LIVE, retries=2)
def test_sensor_of_an_unknown_execution(scene):
    """A sensor waits for an execution that never existed."""
    scene.after_request = lambda request: request.operation == "kickoff" and scene.crew.forget(scene.execution())
    scene.start()


@row(COMPLETED, ways=RUN, scenario=FLOW, max_outage=5)
def test_paused_flow(scene):
    """A flow is paused until it gets human input."""
    scene.start()
    scene.progress(state="paused")
    scene.looked_after(8)
    answered(scene)


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, scenario=FLOW, retries=1, forgotten={"deferred": paid_again()})
def test_paused_flow_and_a_new_try(scene):
    """A flow is paused, and the worker is killed or the task is cleared."""
    asked(scene)
    if scene.way == "sync":
        scene.kill()
    else:
        scene.run.clear(scene.task_id)
    scene.wait_for("running" if scene.way == "sync" else "deferred", tries=2)
    answered(scene)


@row(Ends("failed", "nothing", "running", tries=2), ways=("sync",), scenario=LIVE, retries=3)
def test_execution_of_another_address(scene):
    """The worker is killed, and the connection points to another crew when the retry polls."""
    scene.start()
    scene.looked()
    with LocalCrewService(Scenario(dialect="deployed"), token=scene.crew.token) as other:
        scene.connect(port=other.port)
        scene.kill()
        scene.wait_for("failed")
        assert other.kickoffs == ()
