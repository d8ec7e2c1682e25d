"""A user clears, marks or changes a task, adopts an execution, or forgets kickoff records."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from tests.airflow_runs import TOKEN, eventually
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, PAID_AGAIN, RUN, SENSOR, UNCERTAIN, Ends, row
from tests.faults.scenes import Scene, waiting


@row(PAID_AGAIN, core=True, forgotten=("deferred",))
def test_cleared_after_success(scene):
    """The task is cleared after it succeeded."""
    scene.start()
    scene.finish()
    scene.clear("success")
    scene.finish(2)


@row(COMPLETED_IN_ATTEMPT_2, core=())
def test_run_cleared(scene):
    """The DAG run is cleared while the task waits."""
    waiting(scene)
    scene.airflow.api.post(f"{scene.run.path()}/clear", {"dry_run": False})
    scene.wait_for("deferred", tries=2)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, *SENSOR), retries=0, timeout=15, forgotten=RUN, cost="running")
def test_cleared_after_a_time_out(scene):
    """`timeout` passes, and the task is cleared."""
    scene.start()
    scene.wait_for("failed")
    scene.finish()
    scene.clear("failed")


@row(COMPLETED_IN_ATTEMPT_2, retries=2, forgotten=("deferred",))
def test_retries_lowered(scene):
    """A succeeded task is cleared after `retries` was lowered."""
    scene.start()
    scene.finish()
    scene.wait_for("success")
    scene.rewrite_dag({"retries": 1})
    scene.clear("success")


DECLINED = 1


def command(scene: Scene, name: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command for the task, with a token of Airflow's REST API, and return what it prints."""
    token = str(requests.get(f"{scene.airflow.url}/auth/token", timeout=120).json()["access_token"])
    about = (scene.dag_id, scene.run.run_id, scene.task_id)
    done = subprocess.run(
        [sys.executable, "-m", "airflow_provider_crew", name, *about, *arguments],
        env=scene.airflow._environment | {"AIRFLOW_CLI_TOKEN": token},
        capture_output=True,
        text=True,
        input="",
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == code, told
    assert token not in told
    assert TOKEN not in told
    assert "Traceback" not in told
    return dict(json.loads(done.stdout)) if done.stdout else {}


def adopt(scene: Scene, *arguments: str, **expected: Any) -> dict[str, Any]:
    execution, connection = scene.execution(), ("--conn-id", scene.connection)
    return command(scene, "adopt", execution, *connection, *arguments, **expected)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, "kickoff"),
    core=("deferred",),
    retries=2,
    forgotten=(*RUN, "kickoff"),
    cost="unknown",
)
def test_adopted(scene):
    """The response to the kickoff is lost, the execution is adopted, and the task is cleared."""
    scene.crew.faults.answer(502, on="kickoff", after_taken=True)
    scene.start()
    scene.wait_for("failed")
    adopt(scene, code=DECLINED)  # nobody confirms it
    assert adopt(scene, "--yes")["state"] == "running"
    scene.clear("failed")
    scene.finish()


@row(Ends("success", "the result", "completed", kickoffs=4, tries=2), mapped=2, retries=0, max_outage=4)
def test_forgotten(scene):
    """Two mapped tasks fail while their crews are unknown. Their records are deleted, and they are cleared."""
    scene.start()
    for number in (1, 2):
        scene.crew.set_status(scene.execution(number), {"state": "NOT FOUND", "status": "Task not found"})
    scene.wait_for_all("failed")
    command(scene, "forget", "--map-index", "0", code=DECLINED)
    told = str([command(scene, "forget", "--map-index", index, "--yes") for index in ("0", "1")])
    assert all(scene.execution(number) in told for number in (1, 2))
    command(scene, "forget", "--map-index", "0", "--yes", code=DECLINED)  # there is no record
    scene.wait_until_over()
    scene.run.clear(scene.task_id)
    scene.finish(3)
    scene.finish(4)


@row(
    UNCERTAIN,
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    cost="unknown",
)
def test_cleared_before_the_answer(scene):
    """The task is cleared before the answer to its kickoff, and none arrives in time."""
    scene.start_and_hold("kickoff")
    scene.run.clear(scene.task_id)


@row(
    UNCERTAIN,
    ways=(*RUN, "kickoff"),
    core=("deferred", "kickoff"),
    cost="unknown",
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


def _state(scene):
    state = "SELECT state FROM task_instance WHERE dag_id = %s AND task_id = %s"
    return scene.database.execute(state, scene.dag_id, scene.task_id)[0][0]
