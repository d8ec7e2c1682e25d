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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, eventually
from tests.faults.rows import LONG
from tests.faults.scenes import Scene, standing

TASKS_TEST = "airflow tasks test"
DAG_TEST = "dag.test()"


class ByHand:
    """A process that runs the task. Its output goes to a file, because a full pipe would block it."""

    def __init__(self, scene: Scene, command: str, home: Path) -> None:
        # In its own folder, because Airflow first writes all DAGs of the folder to the database.
        shutil.copy(scene.file, home)
        if command == TASKS_TEST:
            arguments = ["-m", "airflow", "tasks", "test", scene.dag_id, scene.task_id]
        else:
            arguments = ["-c", f"{scene.file.read_text()}\ndag.test()\n"]
        connection = {f"AIRFLOW_CONN_{scene.connection.upper()}": scene.crew.connection_json}
        self._told = home / "told.txt"
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(
                # A process in a shell's background ignores Ctrl-C, and would pass that on to this one.
                ["/usr/bin/env", "--default-signal=INT", sys.executable, *arguments],
                env=scene.airflow._environment | connection | {"AIRFLOW__CORE__DAGS_FOLDER": str(home)},
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self) -> str:
        """Wait for its end, and return its output."""
        self.process.wait(timeout=120)
        return self._told.read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(params=[TASKS_TEST, DAG_TEST])
def run_by_hand(request, airflow, database, dags, tmp_path) -> Iterator[Callable[..., tuple[Scene, ByHand]]]:
    with ExitStack() as stack:

        def run(way: str, **hang: Any) -> tuple[Scene, ByHand]:
            crew = stack.enter_context(LocalCrewService(LONG, token=TOKEN))
            scene = Scene(airflow, database, crew, dags, f"by_hand_{abs(hash(request.node.nodeid))}", way)
            scene.connect()
            scene.write_dag({})
            airflow.api.wait_for_dag(scene.dag_id)
            scene.pause()
            if hang:
                crew.faults.hang(**hang)
            return scene, stack.enter_context(closing(ByHand(scene, request.param, tmp_path)))

        yield run


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_it_kicks_off_once_and_tells_the_result(run_by_hand, way):
    scene, by_hand = run_by_hand(way)
    scene.finish()
    told = by_hand.ended()

    assert by_hand.process.returncode == 0, told
    (taken,) = scene.crew.kickoffs
    assert taken.kickoff_id in told
    assert TOKEN not in told


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_ctrl_c_names_the_running_execution(run_by_hand, way):
    scene, by_hand = run_by_hand(way)
    scene.execution()
    eventually(lambda: len(scene.crew.requests.on("status")) >= 2)
    by_hand.press_ctrl_c()
    told = by_hand.ended()

    (taken,) = scene.crew.kickoffs
    assert taken.kickoff_id in told
    assert standing(scene.crew, taken) == "running"


def test_ctrl_c_before_the_answer_to_the_kickoff_waits_for_it(run_by_hand):
    scene, by_hand = run_by_hand("sync", on="kickoff", after_taken=True, seconds=8)
    execution = scene.execution()
    by_hand.press_ctrl_c()

    assert execution in by_hand.ended()
    assert len(scene.crew.kickoffs) == 1
