"""A task is cleared while its kickoff is on its way."""

from __future__ import annotations

import pytest

from airflow_provider_crew.compat import CLEARING_DELETES_TASK_STATE
from tests.faults.rows import RUN, Ends, paid_again, row

# Airflow 2 lets the process that it ends say so, and then begins no new try.


@row(
    "The task is cleared while it waits for the answer to a kickoff, and none comes in time",
    Ends("failed", "nothing", "goes on", tries=2),
    ways=(*RUN, "kickoff"),
    core=True,
)
def test_cleared_before_the_answer(scene):
    scene.start_without_an_answer()
    scene.run.clear(scene.task_id)


@row(
    "The task is cleared while it waits for the answer to a kickoff, fails, and is cleared again",
    Ends("success", "the result", "has completed", kickoffs=2, tries=3),
    forgotten={"deferred": paid_again(tries=3)},
)
def test_cleared_before_the_answer_and_again(scene):
    scene.start_without_an_answer()
    scene.run.clear(scene.task_id)
    scene.wait_for("failed")
    assert len(scene.crew.kickoffs) == 1
    scene.clear("failed")
    scene.finish(2)


@row(
    "The task is cleared while it waits for the answer to a kickoff, which its process is still given",
    Ends("failed", "nothing", "has completed", tries=2),
    ways=(*RUN, "kickoff"),
    core=True,
)
def test_cleared_just_before_the_answer(scene):
    held = scene.hold("kickoff")
    scene.start()
    scene.execution()
    scene.run.clear(scene.task_id)
    held.release()
    scene.finish()


@row(
    "The task is cleared twice while it waits for the answer to a kickoff, which its process is still given",
    Ends("failed", "the result", "has completed", tries=2),
    ways=("deferred", "kickoff"),
    why="Airflow 3.3 begins the next try beside the process of the one before.",
)
def test_cleared_twice_before_the_answer(scene):
    if CLEARING_DELETES_TASK_STATE:
        pytest.skip("Airflow 3.4 begins no try beside the process of the one before.")
    held = scene.hold("kickoff")
    scene.start()
    scene.execution()
    scene.run.clear(scene.task_id)
    scene.run.clear(scene.task_id)
    scene.wait_for("running", tries=2)
    held.release()
    scene.finish()
