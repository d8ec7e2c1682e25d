"""
A task run with ``airflow tasks test`` or ``dag.test()``.

The DAG is paused, because a scheduler would also run the DAG run: apache/airflow#35994. The connection is in the
environment, because triggers in dag.test() find no other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN
from tests.faults.rows import LONG
from tests.faults.scenes import Scene


@pytest.mark.parametrize("way", ["deferred", "sync"])
@pytest.mark.parametrize("command", ["airflow tasks test", "dag.test()"])
def test_it_kicks_off_once_and_tells_the_result(airflow, database, dags, tmp_path, command, way):
    told = tmp_path / "told.txt"  # a full pipe would block the process
    with LocalCrewService(LONG, token=TOKEN) as crew:
        scene = Scene(airflow, database, crew, dags, f"by_hand_{len(command)}_{way}", way)
        scene.write_dag({})
        airflow.api.wait_for_dag(scene.dag_id)
        scene.pause()
        # In its own folder, because Airflow first writes all DAGs of the folder to the database.
        shutil.copy(scene.file, tmp_path)
        arguments = ["-c", f"{scene.file.read_text()}\ndag.test()\n"]
        if command == "airflow tasks test":
            arguments = ["-m", "airflow", "tasks", "test", scene.dag_id, scene.task_id]
        own = {f"AIRFLOW_CONN_{scene.connection.upper()}": crew.connection_json}
        own |= {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path)}
        given: Any = {"env": airflow._environment | own, "stderr": subprocess.STDOUT}
        with (
            told.open("wb") as output,
            subprocess.Popen([sys.executable, *arguments], stdout=output, **given) as it,
        ):
            try:
                scene.finish()
                assert it.wait(timeout=120) == 0, told.read_text()
            finally:
                it.kill()
        (taken,) = crew.kickoffs
        assert taken.kickoff_id in told.read_text()
        assert TOKEN not in told.read_text()
