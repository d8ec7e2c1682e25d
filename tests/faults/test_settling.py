"""The response to the kickoff is lost, and the crew calls Airflow (`settle_kickoffs`)."""

from __future__ import annotations

from typing import Any

from airflow_provider_crew.local.scenario import Delivery
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, row
from tests.faults.scenes import Code


def calling(*, within: float = 40, **how: Any) -> dict[str, Any]:
    """Return the options of a row whose crew calls like this. A later attempt waits for ``scene.now("retry")``."""
    scenario = LONG.model_copy(update={"started_webhook": Delivery(**how)})
    return {"scenario": scenario, "pre_execute": Code(f"settles({within})")}


def lose_response(scene) -> None:
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()


@row(COMPLETED, ways=(*RUN, "kickoff"), core=("deferred",), retries=2, **calling())
def test_started_crew_calls(scene):
    """The connection is reset after an execution started, and the crew calls."""
    lose_response(scene)
    scene.looked() if scene.way != "kickoff" else scene.wait_for("success")
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, core=True, forgotten=("deferred",), cost="unknown", **calling(delay=25, within=5))
def test_started_crew_calls_after_the_task_has_failed(scene):
    """The crew calls after the task has failed, and a user clears the task."""
    lose_response(scene)
    scene.wait_for("failed")
    eventually(lambda: any(key.startswith("crew_heard_") for key in scene.run.stored(scene.task_id)), pause=1.0)
    scene.clear("failed")
    scene.now("retry")
    if scene.forgets:
        scene.execution(2)
        scene.finish(2)
    scene.finish()
