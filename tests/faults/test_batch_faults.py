"""A batch of twelve rows, of which four run at a time."""

from __future__ import annotations

import time
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from tests.airflow_runs import eventually
from tests.faults.batches import lines_of
from tests.faults.harm import killed
from tests.faults.rows import RUN, Ends, row
from tests.faults.scenes import PAUSE, TOPIC, Code
from tests.faults.test_commands import command
from tests.faults.test_triggerer import no_triggerer
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")

_ROWS = 12
_AT_A_TIME = 4
_BRIEF = 15

done = Ends("success", "the result", "completed", kickoffs=_ROWS)
again = Ends("success", "the result", "completed", kickoffs=_ROWS, tries=2)
batch_row: Any = partial(row, batch=_ROWS, retries=1)


def dies(call: str) -> Code:
    """Kill the task's process once, at that call of the batch."""
    return Code(f"lambda _: dies_at({call})")


def storage(fault: str, *, attempt: int = 0) -> Code:
    """Let the storage of the results have a fault, in one attempt or in all."""
    when = f" if context['ti'].try_number == {attempt} else None" if attempt else ""
    return Code(f"lambda context: storage({fault!r}){when}")


@batch_row(again, ways=RUN)
def test_batch_killed_before_a_group(scene):
    """The worker is killed before it starts the first rows."""
    held = scene.hold("inputs")
    scene.start()
    eventually(lambda: held.is_held, pause=0.2)
    scene.kill()


@batch_row(again, ways=RUN, uncertain=1, core=True, why="The fourth row is reported as uncertain.")
def test_batch_killed_inside_a_group(scene):
    """The worker is killed when the crew has responded to three of four kickoffs."""
    held = scene.hold("kickoff")
    scene.start()
    scene.execution(_AT_A_TIME)
    scene.asked("kickoff", _AT_A_TIME)
    eventually(lambda: held.is_held and _stored(scene) == _AT_A_TIME - 1, pause=PAUSE)
    scene.kill()


def _stored(scene):
    """Return how many kickoff IDs the task state store has."""
    run_id = quote(scene.run.run_id, safe="")
    path = f"dags/{scene.dag_id}/dagRuns/{run_id}/taskInstances/{scene.task_id}/state-store"
    entries = scene.airflow.api.get(path, map_index=-1)
    return sum(kickoff.kickoff_id in str(entries) for kickoff in scene.crew.kickoffs)


@batch_row(again, ways=RUN, pre_execute=dies("'_start_group', after=True"))
def test_batch_killed_after_a_group(scene):
    """The worker is killed right after it has started rows."""
    scene.start()


@batch_row(again, ways=RUN, pre_execute=dies("'append'"))
def test_batch_killed_before_results_are_written(scene):
    """The worker is killed when it is about to write results."""
    _begin(scene)


@batch_row(again, ways=RUN, pre_execute=dies("'append', after=True"))
def test_batch_killed_after_results_are_written(scene):
    """The worker is killed when it has written results, and is about to forget their executions."""
    _begin(scene)


@batch_row(again, ways=RUN, pre_execute=dies("'compact', after=True"))
def test_batch_killed_at_the_end(scene):
    """The worker is killed when the result files are complete."""
    _begin(scene)


@batch_row(again, pre_execute=dies("'_take_event'"), core=True)
def test_batch_killed_on_resuming(scene):
    """The worker is killed when it resumes after some rows have ended."""
    _begin(scene)


def _begin(scene):
    """Start a run, and let the first rows end."""
    scene.start()
    for number in range(1, _AT_A_TIME + 1):
        scene.finish(number)


@batch_row(done, harm=no_triggerer)
def test_batch_without_a_triggerer(scene):
    """The triggerer is killed while rows run, and some end."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.finish(1)
        scene.finish(2)


@batch_row(done, alone=True, executor="local")
def test_batch_with_two_triggerers(scene):
    """One of two triggerers is killed while a batch is deferred."""
    another = scene.airflow.start_another("triggerer")
    try:
        scene.start(until="deferred")
        scene.looked(2)
        scene.airflow.processes["triggerer"].kill()
        scene.finish(1)
        scene.wait_until_over(finishing=True)
    finally:
        another.stop()


@batch_row(done, harm=killed("api-server"))
def test_batch_without_api_server(scene):
    """The API server is down while a batch is deferred."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.looked(4)
        time.sleep(_BRIEF)


@batch_row(
    again,
    ways=("sync",),
    harm=killed("api-server"),
    retry_delay=Code("datetime.timedelta(minutes=2)"),
    why="Airflow ends a task after three failed heartbeats.",
)
def test_batch_in_worker_without_api_server(scene):
    """The API server is down for longer than workers tolerate, while rows end."""
    scene.start()
    scene.execution(_AT_A_TIME)
    process = scene.process()
    with scene.harmed():
        scene.finish(1)
        scene.finish(2)
        eventually(lambda: not process.is_running() or process.status() == "zombie", pause=PAUSE)


@batch_row(again, ways=RUN, pre_execute=storage("is away", attempt=1))
def test_batch_without_storage(scene):
    """The storage is away in the first attempt, so nothing is started."""
    scene.start()
    scene.wait_for("up_for_retry")
    assert not scene.crew.kickoffs


@batch_row(done, ways=RUN, pre_execute=storage("fails"))
def test_batch_with_failing_storage(scene):
    """Two of three writes fail."""
    scene.start()


@batch_row(done, ways=RUN, pre_execute=storage("loses"))
def test_batch_with_forgetful_storage(scene):
    """Two of three writes are lost."""
    scene.start()


@batch_row(done, ways=RUN, pre_execute=storage("is slow"))
def test_batch_with_slow_storage(scene):
    """Each write takes a second."""
    scene.start()


@batch_row(again, ways=RUN, core=True)
def test_batch_cleared_while_rows_run(scene):
    """The task is cleared while rows run."""
    _clear_early(scene)


@batch_row(again)
def test_batch_cleared_and_forgotten_while_rows_run(scene):
    """The task is cleared while rows run, and its state is deleted."""
    scene.start(until="deferred")
    scene.execution(_AT_A_TIME)
    scene.forget_all()
    scene.run.clear(scene.task_id)


def _clear_early(scene):
    scene.start(until="deferred" if scene.way == "deferred" else "")
    scene.execution(_AT_A_TIME)
    scene.looked(_AT_A_TIME)
    scene.run.clear(scene.task_id)


@batch_row(again, ways=RUN)
def test_batch_cleared_after_the_end(scene):
    """The task is cleared when all rows have ended."""
    _end(scene)
    scene.clear("success")
    scene.wait_for("success", tries=2)


@batch_row(again)
def test_batch_cleared_and_forgotten_after_the_end(scene):
    """The task is cleared when all rows have ended, and its state is deleted."""
    _end(scene)
    scene.forget_all()
    scene.clear("success")
    scene.wait_for("success", tries=2)


def _end(scene):
    scene.start()
    scene.wait_until_over(finishing=True)


def _run_with_uncertain_row(scene):
    """Run the batch to its end, and kill its worker while the response to a kickoff is held back."""
    held = scene.hold("kickoff")
    scene.start()
    scene.execution(_AT_A_TIME)
    eventually(lambda: held.is_held, pause=PAUSE)
    scene.kill()
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
    (key,) = [line["key"] for line in lines_of(scene) if line["status"] == "uncertain"]
    (lost,) = [each.kickoff_id for each in scene.crew.kickoffs if each.inputs["topic"] == key]
    command(scene, "adopt", lost, "--conn-id", scene.connection, "--row", key, "--yes")
    scene.clear("success")
    scene.wait_until_over(finishing=True)


@batch_row(Ends("success", "the result", "completed", kickoffs=_ROWS + 2, tries=2), ways=RUN)
def test_batch_with_other_rows(scene):
    """Rows are reordered, changed, removed and added when the task is cleared."""
    _end(scene)
    rows = [{"topic": f"{TOPIC} {number}"} for number in range(1, _ROWS)]
    rows[5]["audience"] = "pilots"
    given = {"retries": 1, "inputs": [*reversed(rows), {"topic": f"{TOPIC} {_ROWS}"}]}
    scene.rewrite_dag(given)
    scene.clear("success")
    scene.wait_until_over(finishing=True)
    assert (scene.xcom()["changed"], scene.xcom()["removed"]) == (1, 1)
    assert len(lines_of(scene, "removed.jsonl")) == 2
