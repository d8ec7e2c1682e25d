"""
A task run with ``airflow tasks test`` or ``dag.test()``.

The DAG is paused, because a scheduler would also run the DAG run: apache/airflow#35994. The connection is in the
environment, because triggers in dag.test() find no other.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN
from tests.faults.rows import LONG
from tests.faults.scenes import Scene, standing


def end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def told(tmp_path):
    """File of the output: a full pipe would block the process."""
    return tmp_path / "told.txt"


@pytest.fixture(params=["airflow tasks test", "dag.test()"])
def run_by_hand(request, airflow, database, dags, tmp_path, told):
    with ExitStack() as stack:

        def run(way: str) -> tuple[Scene, subprocess.Popen[bytes]]:
            crew = stack.enter_context(LocalCrewService(LONG, token=TOKEN))
            scene = Scene(airflow, database, crew, dags, f"by_hand_{abs(hash(request.node.nodeid))}", way)
            scene.write_dag({})
            airflow.api.wait_for_dag(scene.dag_id)
            scene.pause()
            # In its own folder, because Airflow first writes all DAGs of the folder to the database.
            shutil.copy(scene.file, tmp_path)
            arguments = ["-c", f"{scene.file.read_text()}\ndag.test()\n"]
            if request.param == "airflow tasks test":
                arguments = ["-m", "airflow", "tasks", "test", scene.dag_id, scene.task_id]
            own = {f"AIRFLOW_CONN_{scene.connection.upper()}": crew.connection_json}
            own |= {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path)}
            process = subprocess.Popen(
                # A process in a shell's background ignores Ctrl-C, and would pass that on to this one.
                ["/usr/bin/env", "--default-signal=INT", sys.executable, *arguments],
                env=scene.airflow._environment | own,
                stdout=stack.enter_context(told.open("wb")),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(end, process)
            return scene, process

        yield run


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_it_kicks_off_once_and_tells_the_result(run_by_hand, told, way):
    scene, process = run_by_hand(way)
    scene.finish()

    assert process.wait(timeout=120) == 0, told.read_text()
    (taken,) = scene.crew.kickoffs
    assert taken.kickoff_id in told.read_text()
    assert TOKEN not in told.read_text()


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_ctrl_c_names_the_running_execution(run_by_hand, told, way):
    scene, process = run_by_hand(way)
    scene.execution()
    scene.asked("status", 2)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=120)

    (taken,) = scene.crew.kickoffs
    assert taken.kickoff_id in told.read_text()
    assert standing(taken) == "running"
