"""A user clears, marks, pauses or changes a task or its DAG."""

from __future__ import annotations

import pytest

from airflow_provider_crew.local import Scenario
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, SENSOR, Ends, row
from tests.faults.scenes import PAUSE, Code, never_stopped, waiting
from tests.faults.test_crew_ends import FAILING

STARTED_AGAIN = Ends("success", "the result", "completed", kickoffs=2, tries=2)

BROKEN = Code("lambda *_: 1 / 0")


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "sensor deferred"),
    core=(),
    needs_store=("deferred",),
    forgotten=("deferred",),
)
def test_cleared_while_deferred(scene):
    """The task is cleared while it is deferred."""
    scene.start()
    trigger = scene.wait_for("deferred")["trigger"]["id"]
    scene.looked(2)
    scene.run.clear(scene.task_id)
    eventually(lambda: (scene.task["trigger"] or {}).get("id") not in {None, trigger}, pause=PAUSE)
    scene.finish()


@row(STARTED_AGAIN, core=True, forgotten=("deferred",), needs_store=("deferred",))
def test_cleared_after_success(scene):
    """The task is cleared after it succeeded."""
    scene.start()
    scene.finish()
    scene.clear("success")
    scene.finish(2)


@row(COMPLETED, ways=RUN, retries=1, on_success_callback=[Code("killed_once")])
def test_killed_at_success(scene):
    """The process is killed in `on_success_callback`."""
    scene.start()
    scene.finish()


@row(Ends("success", "the result", "completed", 4, tries=3), mapped=2, retries=1)
def test_rows_change_places(scene):
    """Two mapped rows swap places. Both are cleared while their crews run, and again when those have ended."""
    if scene.forgets:
        pytest.skip("There every Clear kicks off anew.")
    scene.is_reversed = True
    scene.rewrite_dag({"retries": 1})
    scene.start()
    scene.execution(2)
    scene.wait_for_all("deferred")
    scene.is_reversed = False
    scene.rewrite_dag({"retries": 1})
    scene.run.clear(scene.task_id)
    scene.wait_for_all("failed")
    assert len(scene.crew.kickoffs) == 2
    scene.finish(1)
    scene.finish(2)
    scene.wait_until_over()
    scene.run.clear(scene.task_id)
    scene.finish(3)
    scene.finish(4)


@row(
    Ends("success", "the kickoff ID", "running", kickoffs=2, tries=2),
    ways=("kickoff",),
    forgotten=("kickoff",),
)
def test_kickoff_cleared_after_completion(scene):
    """The kickoff task is cleared after it succeeded, and the crew has completed."""
    scene.start()
    scene.finish()
    scene.clear("success")


@row(
    {"deferred": STARTED_AGAIN, "sensor deferred": Ends("failed", "nothing", "failed", tries=2)},
    ways=("deferred", "sensor deferred"),
    scenario=FAILING,
    retries=0,
    forgotten=("deferred",),
)
def test_cleared_after_failure(scene):
    """The task is cleared after the crew failed."""
    scene.start()
    scene.wait_for("failed")
    scene.crew.scenario = Scenario.model_validate(FAILING.model_dump() | {"tasks": [{"name": "writing_task"}]})
    scene.clear("failed")


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, *SENSOR), retries=0, timeout=15, forgotten=RUN)
def test_cleared_after_a_time_out(scene):
    """`timeout` passes, and the task is cleared."""
    scene.start()
    scene.wait_for("failed")
    scene.finish()
    scene.clear("failed")


@row(
    Ends("failed", "only the kickoff ID", "running"),
    ways=(*RUN, "sensor deferred", "sensor poke"),
    retries=0,
    execution_timeout=Code("datetime.timedelta(seconds=20)"),
)
def test_execution_timeout(scene):
    """`execution_timeout` passes while the crew runs."""
    scene.start()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, forgotten=RUN)
def test_marked_as_failed_and_cleared(scene):
    """The task is marked as failed while it waits, and cleared later."""
    waiting(scene)
    scene.mark("failed")
    scene.unwatched()
    scene.clear("failed")
    scene.finish()


@row(Ends("success", "the result", "completed", tries=3), post_execute=BROKEN, retries=0)
def test_post_execute_keeps_failing(scene):
    """`post_execute` fails when the crew has completed, and the task is cleared twice before that is fixed."""
    if scene.forgets:
        pytest.skip("There every Clear kicks off anew.")
    scene.start()
    scene.finish()
    scene.clear("failed")
    scene.wait_for("failed", tries=2)
    scene.rewrite_dag({"retries": 0})
    scene.clear("failed")


@row(COMPLETED, cancel_on_kill=True)
def test_paused(scene):
    """The DAG is paused while the task is deferred, and unpaused long after the crew completed."""
    scene.start(until="deferred")
    scene.pause()
    scene.finish()
    scene.wait_for("scheduled")
    scene.pause(paused=False)
    never_stopped(scene)


@row(COMPLETED_IN_ATTEMPT_2, retries=2, forgotten=("deferred",))
def test_retries_lowered(scene):
    """A succeeded task is cleared after `retries` was lowered."""
    scene.start()
    scene.finish()
    scene.wait_for("success")
    scene.rewrite_dag({"retries": 1})
    scene.clear("success")


@row(Ends("success", "the result", "completed", kickoffs=2, tries=3), retries=1)
def test_retries_raised(scene):
    """A task that failed after an uncertain kickoff is cleared after `retries` was raised."""
    scene.start_without_an_answer()
    scene.kill()
    scene.wait_for("failed")
    scene.rewrite_dag({"retries": 3})
    scene.clear("failed")
    scene.finish(2)


@row(Ends("failed", "nothing", "running", tries=2), retries=1, retry_delay=Code("datetime.timedelta(seconds=30)"))
def test_retries_raised_before_a_retry(scene):
    """The worker is killed before the answer to a kickoff, and `retries` is raised before the retry."""
    scene.start_without_an_answer()
    scene.kill()
    scene.wait_for("up_for_retry")
    scene.rewrite_dag({"retries": 5, "retry_delay": Code("datetime.timedelta(seconds=1)")})


@row(
    Ends("removed", "nothing", "running"),
    ways=("sensor deferred",),
    alone=True,
    why="Airflow marks the DAG run as success. Such a task may crash its triggerer: apache/airflow#69841.",
)
def test_task_removed(scene):
    """The task is removed from the DAG file while it is deferred."""
    scene.start(until="deferred")
    scene.looked()
    scene.rewrite_dag({}, without="result")
    scene.unwatched()


@row(COMPLETED, ways=("deferred", "sensor deferred"))
def test_dag_file_deleted(scene):
    """The DAG file is deleted while the task is deferred, and restored when the crew has completed."""
    scene.start(until="deferred")
    scene.looked()
    scene.file.unlink()
    scene.finish()
    # Airflow cannot resume a task without its file, and tries again later.
    scene.wait_for("up_for_reschedule")
    scene.rewrite_dag({})
