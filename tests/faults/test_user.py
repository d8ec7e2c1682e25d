"""A user steps in: clears, marks, pauses, or changes the DAG."""

from __future__ import annotations

import pytest

from airflow_provider_crew.local import Scenario
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, SENSOR, Ends, paid_again, row
from tests.faults.scenes import PAUSE, Code
from tests.supported import AIRFLOW

STARTED_AGAIN = Ends("success", "the result", "has completed", kickoffs=2, tries=2)

BROKEN = Code("lambda *_: 1 / 0")

FAILING = Scenario.model_validate(
    {"inputs": [{"name": "topic"}], "tasks": [{"name": "writing_task", "error": "out of credit"}]}
)


@row(
    "The task is cleared while it is deferred",
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "sensor deferred"),
    core=True,
    forgotten={"deferred": paid_again()},
)
def test_cleared_while_deferred(scene):
    scene.start()
    trigger = scene.wait_for("deferred")["trigger"]["id"]
    scene.looked(2)
    scene.run.clear(scene.task_id)
    eventually(lambda: (scene.task["trigger"] or {}).get("id") not in {None, trigger}, 180, PAUSE)
    scene.finish()


@row("The task is cleared while it runs, and the crew works", COMPLETED_IN_ATTEMPT_2, ways=("sync", "sensor poke"))
def test_cleared_while_running(scene):
    scene.start()
    scene.looked(2)
    scene.run.clear(scene.task_id)
    scene.wait_for("running", tries=2)
    scene.finish()


@row(
    "The task is cleared after it has succeeded",
    STARTED_AGAIN,
    core=True,
    forgotten={"deferred": paid_again()},
    needs_store=("deferred",),
)
def test_cleared_after_success(scene):
    scene.start()
    scene.finish()
    scene.clear("success")
    scene.finish(2)


@row(
    "The process is killed in the author's post_execute when the crew has completed, and the task is cleared",
    COMPLETED_IN_ATTEMPT_2,
    ways=RUN,
    retries=0,
    post_execute=Code("killed_once"),
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_killed_after_completion(scene):
    scene.start()
    scene.finish()
    scene.clear("failed")


@row(
    "The process is killed in the author's on_success_callback",
    Ends("success", "the result", "has completed", tries=1 if AIRFLOW >= (3,) else 2),
    ways=RUN,
    retries=1,
    on_success_callback=[Code("killed_once")],
)
def test_killed_at_success(scene):
    scene.start()
    scene.finish()


@row(
    "Two mapped rows change places while their crews work, and both are cleared, and again when the crews ended",
    Ends("success", "the result", "has completed", 4, tries=3),
    mapped=2,
    retries=1,
)
def test_rows_change_places(scene):
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
    "The kickoff task is cleared after it has succeeded, while the crew works",
    Ends("success", "the kickoff id", "goes on", tries=2),
    ways=("kickoff",),
    forgotten={"kickoff": paid_again()},
)
def test_kickoff_cleared_after_success(scene):
    scene.start()
    scene.clear("success")


@row(
    "The kickoff task is cleared after it has succeeded, and the crew has completed",
    Ends("success", "the kickoff id", "goes on", kickoffs=2, tries=2),
    ways=("kickoff",),
    forgotten={"kickoff": paid_again()},
)
def test_kickoff_cleared_after_completion(scene):
    scene.start()
    scene.finish()
    scene.clear("success")


@row(
    "The task is cleared after the crew has failed",
    {"deferred": STARTED_AGAIN, "sensor deferred": Ends("failed", "nothing", "has failed", tries=2)},
    ways=("deferred", "sensor deferred"),
    scenario=FAILING,
    retries=0,
    forgotten={"deferred": paid_again()},
)
def test_cleared_after_failure(scene):
    scene.start()
    scene.wait_for("failed")
    scene.crew.scenario = Scenario.model_validate(FAILING.model_dump() | {"tasks": [{"name": "writing_task"}]})
    scene.clear("failed")


@row(
    "The time to wait (timeout) is over, and the task is cleared",
    COMPLETED_IN_ATTEMPT_2,
    ways=(*RUN, *SENSOR),
    retries=0,
    timeout=15,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_cleared_after_a_time_out(scene):
    scene.start()
    scene.wait_for("failed")
    scene.finish()
    scene.clear("failed")


@row(
    "The time to wait (timeout) of a sensor with soft_fail is over",
    Ends("skipped", "nothing", "goes on"),
    ways=SENSOR,
    retries=2,
    timeout=15,
    soft_fail=True,
)
def test_soft_fail(scene):
    scene.start()


@row(
    "execution_timeout is over while the crew works",
    Ends("failed", "the kickoff id only", "goes on"),
    ways=(*RUN, "sensor deferred", "sensor poke"),
    retries=0,
    execution_timeout=Code("datetime.timedelta(seconds=20)"),
)
def test_execution_timeout(scene):
    scene.start()


@row(
    "The task is marked as failed while it waits",
    Ends("failed", "the kickoff id only", "goes on"),
    ways=(*RUN, "sensor deferred", "sensor poke"),
    retries=2,
)
def test_marked_as_failed(scene):
    _marked(scene, "failed")


@row(
    "The task is marked as a success while it waits",
    Ends("success", "the kickoff id only", "goes on"),
    ways=RUN,
    retries=2,
)
def test_marked_as_a_success(scene):
    _marked(scene, "success")


def _marked(scene, state):
    scene.start()
    scene.looked(2)
    if "deferred" in scene.way:
        scene.wait_for("deferred")
    scene.mark(state)
    scene.unwatched()


@row(
    "The task is marked as failed while it waits, and is cleared later",
    COMPLETED_IN_ATTEMPT_2,
    ways=RUN,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_marked_as_failed_and_cleared(scene):
    _marked(scene, "failed")
    scene.clear("failed")
    scene.finish()


@row(
    "The map_index_template of the task cannot be rendered",
    COMPLETED,
    ways=("deferred", "sync", "sensor deferred"),
    core=True,
    map_index_template="{{ no_such_name.at_all }}",
)
def test_no_name(scene):
    scene.start()
    if "deferred" in scene.way:
        scene.wait_for("deferred")
    scene.finish()


@row(
    "The author's post_execute fails when the crew has completed; the task is cleared when it is mended",
    COMPLETED_IN_ATTEMPT_2,
    ways=RUN,
    post_execute=BROKEN,
    retries=0,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_post_execute_fails(scene):
    scene.start()
    scene.finish()
    scene.wait_for("failed")
    scene.rewrite_dag({"retries": 0})
    scene.clear("failed")


@row(
    "The author's post_execute fails when the crew has completed; the task is cleared twice before it is mended",
    Ends("success", "the result", "has completed", tries=3),
    post_execute=BROKEN,
    retries=0,
)
def test_post_execute_keeps_failing(scene):
    if scene.forgets:
        pytest.skip("There every Clear kicks off anew.")
    scene.start()
    scene.finish()
    scene.clear("failed")
    scene.wait_for("failed", tries=2)
    scene.rewrite_dag({"retries": 0})
    scene.clear("failed")


@row("The DAG is paused while the task is deferred, and unpaused when the crew has long completed", COMPLETED)
def test_paused(scene):
    scene.start(until="deferred")
    scene.pause()
    scene.finish()
    scene.wait_for("scheduled")
    scene.pause(paused=False)


@row(
    "A task that has succeeded is cleared after its retries were lowered",
    COMPLETED_IN_ATTEMPT_2,
    retries=2,
    forgotten={"deferred": paid_again()},
)
def test_retries_lowered(scene):
    scene.start()
    scene.finish()
    scene.wait_for("success")
    scene.rewrite_dag({"retries": 1})
    scene.clear("success")


@row(
    "A task that has failed for want of the answer to its kickoff is cleared after its retries were raised",
    Ends("success", "the result", "has completed", kickoffs=2, tries=3),
    retries=1,
)
def test_retries_raised(scene):
    scene.start_without_an_answer()
    scene.kill()
    scene.wait_for("failed")
    scene.rewrite_dag({"retries": 3})
    scene.clear("failed")
    scene.finish(2)


@row(
    "Retries are raised between the death of the worker, before the answer to a kickoff, and the retry",
    Ends("failed", "nothing", "goes on", tries=2),
    retries=1,
    retry_delay=Code("datetime.timedelta(seconds=30)"),
)
def test_retries_raised_before_a_retry(scene):
    scene.start_without_an_answer()
    scene.kill()
    scene.wait_for("up_for_retry")
    scene.rewrite_dag({"retries": 5, "retry_delay": Code("datetime.timedelta(seconds=1)")})


@row(
    "The service stays away for longer than max_outage, until all retries are used up",
    Ends("failed", "the kickoff id only", "goes on", tries=2),
    ways=(*RUN, "sensor deferred", "sensor poke"),
    retries=1,
    max_outage=4,
)
def test_retries_exhausted(scene):
    scene.start()
    scene.execution()
    scene.looked()
    scene.crew.faults.refuse()


@row(
    "The task is removed from the DAG file while it is deferred",
    Ends("removed", "nothing", "goes on"),
    ways=("sensor deferred",),
    alone=True,
    why="Airflow ends the run as a success. Its triggerer may fail over such a task: apache/airflow#69841.",
)
def test_task_removed(scene):
    scene.start(until="deferred")
    scene.looked()
    scene.rewrite_dag({}, without="result")
    scene.unwatched()


@row(
    "The DAG file is deleted while the task is deferred, and comes back when the crew has completed",
    COMPLETED,
    ways=("deferred", "sensor deferred"),
)
def test_dag_file_deleted(scene):
    scene.start(until="deferred")
    scene.looked()
    scene.file.unlink()
    scene.finish()
    # Airflow cannot resume a task whose file is not there, and puts it off.
    scene.wait_for("up_for_reschedule")
    scene.rewrite_dag({})
