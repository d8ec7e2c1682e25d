"""The crew fails."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import LONG, RUN, SENSOR, Ends, row


def failing(**habits: object) -> Scenario:
    last = {"name": "writing_task", "seconds": 1, "error": "The writer ran out of credit."}
    return Scenario.model_validate({"inputs": [{"name": "topic"}], "tasks": [last], **habits})


@row(Ends("success", "the result", "completed", kickoffs=2, tries=2), ways=RUN, scenario=failing(), retries=1)
def test_crew_fails_once(scene):
    """The crew fails, and the task has a retry."""
    scene.start()
    scene.execution()
    scene.crew.scenario = LONG
    scene.finish(2)


@row(Ends("failed", "only the kickoff ID", "failed", kickoffs=2, tries=2), ways=RUN, scenario=failing(), retries=1)
def test_crew_fails_always(scene):
    """The crew fails in every attempt."""
    scene.start()


@row(Ends("failed", "only the kickoff ID", "failed"), scenario=failing(dialect="deployed"))
def test_crew_fails_in_the_deployed_dialect(scene):
    """The crew fails, in the dialect of deployed crews."""
    scene.start()


@row(Ends("failed", "nothing", "failed"), ways=SENSOR, scenario=failing(), retries=2)
def test_crew_of_a_sensor_fails(scene):
    """The crew fails, and a sensor waits for it."""
    scene.start()


@row(Ends("skipped", "nothing", "failed"), ways=SENSOR, scenario=failing(), soft_fail=True, retries=2)
def test_crew_of_a_soft_sensor_fails(scene):
    """The crew fails, and a sensor with `soft_fail` waits for it."""
    scene.start()
