"""A task is cleared while its kickoff is being sent."""

from __future__ import annotations

import pytest

from airflow_provider_crew.versions import CLEARING_DELETES_TASK_STATE
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, RUN, Ends, paid_again, row
from tests.supported import AIRFLOW


@row(Ends("failed", "nothing", "running", tries=2), ways=(*RUN, "kickoff"), core=True)
def test_cleared_before_the_answer(scene):
    """The task is cleared before the answer to its kickoff, and none arrives in time."""
    scene.start_without_an_answer()
    scene.run.clear(scene.task_id)


@row(Ends("success", "the result", "completed", kickoffs=2, tries=3), forgotten={"deferred": paid_again(tries=3)})
def test_cleared_before_the_answer_and_again(scene):
    """The task is cleared before the answer to its kickoff, fails, and is cleared again."""
    scene.start_without_an_answer()
    scene.run.clear(scene.task_id)
    scene.wait_for("failed")
    assert len(scene.crew.kickoffs) == 1
    scene.clear("failed")
    scene.finish(2)


@row(
    # On Airflow 3.3, a process that was replaced can't write to the task state store.
    Ends("failed", "nothing", "completed", tries=2) if (3, 3) <= AIRFLOW < (3, 4) else COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "kickoff"),
    core=True,
)
def test_cleared_just_before_the_answer(scene):
    """The task is cleared before the answer to its kickoff, which its process still receives."""
    held = scene.hold("kickoff")
    scene.start()
    scene.execution()
    scene.run.clear(scene.task_id)
    held.release()
    scene.finish()


@row(
    Ends("failed", "the result", "completed", tries=2),
    ways=("deferred", "kickoff"),
    executor="local",
    why="Airflow 3.3 starts the next attempt while the process of the earlier one still runs.",
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
    eventually(lambda: (scene.task["state"], scene.task["try_number"]) == ("running", 2), 180, 0.1)
    held.release()
    scene.finish()
