"""A batch of twelve rows, of which four run at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.airflow_runs import eventually
from tests.faults.rows import RUN, Ends, row
from tests.faults.scenes import PAUSE
from tests.faults.test_user import command
from tests.integration.batches import statuses

_ROWS = 12
_AT_A_TIME = 4

again = Ends("success", "the result", "completed", kickoffs=_ROWS, tries=2)
batch_row: Any = partial(row, batch=_ROWS, retries=1)


def _kill_inside_a_group(scene):
    """Kill the worker when the crew has responded to three of four kickoffs."""
    held = scene.hold("kickoff")
    scene.start()
    scene.execution(_AT_A_TIME)
    scene.asked("kickoff", _AT_A_TIME)

    def stored() -> int:
        entries = str(scene.run.stored(scene.task_id))
        return sum(kickoff.kickoff_id in entries for kickoff in scene.crew.kickoffs)

    eventually(lambda: held.is_held and stored() == _AT_A_TIME - 1, pause=PAUSE)
    scene.kill()


@batch_row(again, ways=RUN, uncertain=1, core=("deferred",), why="The fourth row is reported as uncertain.")
def test_batch_killed_inside_a_group(scene):
    """The worker is killed when the crew has responded to three of four kickoffs."""
    _kill_inside_a_group(scene)


@batch_row(again, ways=RUN, core=("deferred",))
def test_batch_cleared_while_rows_run(scene):
    """The task is cleared while rows run."""
    scene.start(until="deferred" if scene.way == "deferred" else "")
    scene.execution(_AT_A_TIME)
    scene.looked(_AT_A_TIME)
    scene.run.clear(scene.task_id)


def _run_with_uncertain_row(scene):
    """Run the batch to its end, after its worker was killed inside a group."""
    _kill_inside_a_group(scene)
    scene.wait_until_over(finishing=True)


@batch_row(Ends("success", "the result", "completed", kickoffs=_ROWS + 1, tries=3), ways=RUN)
def test_batch_with_uncertain_row_cleared(scene):
    """A row is uncertain, and the task is cleared after that was reported."""
    _run_with_uncertain_row(scene)
    scene.clear("success")
    scene.wait_until_over(finishing=True)


@batch_row(Ends("success", "the result", "completed", kickoffs=_ROWS, tries=3), ways=("sync",))
def test_batch_with_adopted_row(scene):
    """A row is uncertain, its execution is adopted, and the task is cleared."""
    _run_with_uncertain_row(scene)
    (key,) = [key for key, status in statuses(scene.results).items() if status == "uncertain"]
    (lost,) = [each.kickoff_id for each in scene.crew.kickoffs if each.inputs["topic"] == key]
    command(scene, "adopt", lost, "--conn-id", scene.connection, "--row", key, "--yes")
    scene.clear("success")
    scene.wait_until_over(finishing=True)
