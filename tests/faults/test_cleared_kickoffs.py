"""A task is cleared while its kickoff is being sent."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_crew.versions import CLEARING_DELETES_TASK_STATE
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import PAUSE, Code


@row(
    Ends("failed", "nothing", "running", tries=2),
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    needs_store=(*RUN, "kickoff"),
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


# As Airflow clears a task, with a pause between its first look and its changes.
_CLEAR = """
import sys

from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.utils.session import create_session

with create_session() as session:
    ti = session.query(TaskInstance).filter_by(dag_id=sys.argv[1], run_id=sys.argv[2], task_id=sys.argv[3]).one()
    assert ti.state == "running"
    print("Cleared soon", flush=True)
    sys.stdin.readline()
    clear_task_instances([ti], session)
"""


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync", "kickoff"),
    needs_store=("sync", "kickoff"),
    post_execute=Code("lambda *_: until('cleared')"),
)
def test_cleared_while_it_succeeds(scene):
    """The task succeeds while it is being cleared, so that Airflow drops its success, and is cleared again."""
    if CLEARING_DELETES_TASK_STATE:
        pytest.skip("Airflow 3.4 begins no try beside the process of the one before.")
    scene.start()
    scene.finish()
    command = [sys.executable, "-c", _CLEAR, scene.dag_id, scene.run.run_id, scene.task_id]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=scene.airflow._environment
    ) as clearing:
        assert any("Cleared soon" in line for line in clearing.stdout)
        scene.now("cleared")
        eventually(lambda: _state(scene) == "success", pause=0.02)
        time.sleep(0.5)
        clearing.communicate("\n")
    assert clearing.returncode == 0
    eventually(lambda: scene.task["state"] in {None, "up_for_retry"}, pause=PAUSE)
    # The scheduler has ended the run because of the success, and starts no attempt.
    scene.wait_until_over()
    scene.run.clear(scene.task_id)
