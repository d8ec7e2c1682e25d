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

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, eventually
from tests.faults.rows import LONG
from tests.faults.scenes import Scene, standing

TASKS_TEST = "airflow tasks test"
DAG_TEST = "dag.test()"
BY_HAND = pytest.mark.parametrize("command", [TASKS_TEST, DAG_TEST])


@pytest.fixture
def scene(request, airflow, database, dags) -> Iterator[Callable[[str], Scene]]:
    with ExitStack() as stack:

        def written(way: str) -> Scene:
            crew = stack.enter_context(LocalCrewService(LONG, token=TOKEN))
            dag_id = f"by_hand_{abs(hash(request.node.nodeid))}"
            scene = Scene(airflow, database, crew, dags, dag_id, way)
            scene.connect()
            scene.write_dag({})
            airflow.api.wait_for_dag(dag_id)
            scene.pause()
            return scene

        yield written


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


@pytest.fixture
def run_by_hand(tmp_path) -> Iterator[Callable[[Scene, str], ByHand]]:
    with ExitStack() as stack:

        def run(scene: Scene, command: str) -> ByHand:
            return stack.enter_context(closing(ByHand(scene, command, tmp_path)))

        yield run


@BY_HAND
@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_it_kicks_off_once_and_tells_the_result(scene, run_by_hand, command, way):
    played = scene(way)
    by_hand = run_by_hand(played, command)
    played.finish()
    told = by_hand.ended()

    assert by_hand.process.returncode == 0, told
    (taken,) = played.crew.kickoffs
    assert taken.kickoff_id in told
    assert TOKEN not in told


@BY_HAND
@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_ctrl_c_names_the_running_execution(scene, run_by_hand, command, way):
    played = scene(way)
    by_hand = run_by_hand(played, command)
    played.execution()
    eventually(lambda: len(played.crew.requests.on("status")) >= 2)
    by_hand.press_ctrl_c()
    told = by_hand.ended()

    (taken,) = played.crew.kickoffs
    assert taken.kickoff_id in told
    assert standing(played.crew, taken) == "running"


@BY_HAND
def test_ctrl_c_before_the_answer_to_the_kickoff_waits_for_it(scene, run_by_hand, command):
    played = scene("sync")
    played.crew.faults.hang(on="kickoff", after_taken=True, seconds=8)
    by_hand = run_by_hand(played, command)
    execution = played.execution()
    by_hand.press_ctrl_c()
    told = by_hand.ended()

    assert execution in told
    assert len(played.crew.kickoffs) == 1
