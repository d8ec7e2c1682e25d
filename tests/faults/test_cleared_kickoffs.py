"""A task is cleared while its kickoff is being sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_crew.versions import CLEARING_DELETES_TASK_STATE
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, RUN, UNCERTAIN, Ends, row


@row(
    UNCERTAIN,
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    needs_store=(*RUN, "kickoff"),
    cost="unknown",
)
def test_cleared_before_the_answer(scene):
    """The task is cleared before the answer to its kickoff, and none arrives in time."""
    scene.start_without_an_answer()
    scene.run.clear(scene.task_id)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    needs_store=(*RUN, "kickoff"),
)
def test_cleared_just_before_the_answer(scene):
    """The task is cleared before the answer to its kickoff, which its process still receives."""
    held = scene.hold("kickoff")
    scene.start()
    scene.execution()
    with ThreadPoolExecutor(1) as pool:
        # Airflow kills the process some seconds after the clear, maybe before it says that it has cleared.
        clearing = pool.submit(scene.run.clear, scene.task_id)
        eventually(lambda: _state(scene) != "running", pause=0.05)
        held.release()
        clearing.result()
    scene.finish()


def _state(scene):
    state = "SELECT state FROM task_instance WHERE dag_id = %s AND task_id = %s"
    return scene.database.execute(state, scene.dag_id, scene.task_id)[0][0]


@row(
    Ends("failed", "the result", "completed", tries=2),
    ways=("deferred", "kickoff"),
    executor="local",
    why="Airflow 3.3 starts the next attempt while the process of the earlier one still runs.",
    cost="unknown",
)
def test_cleared_twice_before_the_answer(scene):
    """The task is cleared twice before the answer to its kickoff, which its process still receives."""
    if CLEARING_DELETES_TASK_STATE:
        pytest.skip("Airflow 3.4 begins no try beside the process of the one before.")
    held = scene.hold("kickoff")
    scene.start()
    scene.execution()
    scene.run.clear(scene.task_id)
    scene.run.clear(scene.task_id)
    # Attempt 2 runs for a second only.
    eventually(lambda: (scene.task["state"], scene.task["try_number"]) == ("running", 2), pause=0.1)
    held.release()
    scene.finish()
