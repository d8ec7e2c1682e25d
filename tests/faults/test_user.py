"""A user steps in: clears, marks, pauses, or changes the DAG."""

from __future__ import annotations

import pytest

from airflow_provider_crew.compat import CLEARING
from airflow_provider_crew.local import Scenario
from tests.faults.rows import RUN, SENSOR, Ends, left_by, paid_again, row
from tests.faults.scenes import Code
from tests.supported import AIRFLOW

REATTACHED = "Execution {id}: kicked off by an earlier try"
KICK_OFF_ANEW = "To force that, clear the task again when it has ended, or set reattach=False."
LOST_ANSWER = "An earlier try sent a kickoff and ended before it knew the answer."
TO_END = "Execution {id}: the task is to end. Money: It is running, or waits, as far as is known, and is paid for."
NOT_WATCHED = "Execution {id}: not watched any more by this triggerer"
ELSEWHERE = 'CrewExecutionSensor(kickoff_id="{id}")'
STILL_GOING = "was still going when the time to wait was over"
FAILED = "The crew says: out of credit."

GONE_ON_WITH = Ends("success", (REATTACHED,), "the result", "has completed", tries=2)
WAITED_ON = Ends("success", ("Execution {id}: completed",), "the result", "has completed", tries=2)

BROKEN = Code("lambda *_: 1 / 0")

FAILING = Scenario.model_validate(
    {"inputs": [{"name": "topic"}], "tasks": [{"name": "writing_task", "error": "out of credit"}]}
)


@row(
    "The task is cleared while it is deferred",
    {
        "deferred": Ends("success", (NOT_WATCHED, REATTACHED), "the result", "has completed", tries=2),
        "sensor deferred": Ends(
            "success", (NOT_WATCHED, "Execution {id}: completed"), "the result", "has completed", tries=2
        ),
    },
    ways=("deferred", "sensor deferred"),
    core=True,
    forgotten={"deferred": paid_again()},
)
def test_cleared_while_deferred(scene):
    scene.start()
    scene.wait_for("deferred")
    scene.looked(2)
    scene.run.clear(scene.task_id)
    scene.tells("not watched any more")
    scene.finish()


@row(
    "The task is cleared while it runs, and the crew works",
    {
        "sync": Ends("success", (TO_END, REATTACHED), "the result", "has completed", tries=2),
        "sensor poke": Ends(
            "success", (TO_END, "Execution {id}: completed"), "the result", "has completed", tries=2
        ),
    },
    ways=("sync", "sensor poke"),
)
def test_cleared_while_running(scene):
    scene.start()
    scene.looked(2)
    scene.run.clear(scene.task_id)
    scene.wait_for("running", tries=2)
    scene.finish()


@row(
    "The task is cleared after it has succeeded",
    Ends(
        "success", ("is over. The crew is kicked off anew.",), "the result", "has completed", kickoffs=2, tries=2
    ),
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
    Ends("success", (REATTACHED,), "the result", "has completed", tries=2),
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
    Ends(
        "success", ("Execution {id}: completed",), "the result", "has completed", tries=1 if AIRFLOW >= (3,) else 2
    ),
    ways=RUN,
    retries=1,
    on_success_callback=[Code("killed_once")],
)
def test_killed_at_success(scene):
    scene.start()
    scene.finish()


@row(
    "Two mapped rows change places while their crews work, and both are cleared, and again when the crews ended",
    Ends(
        "success", ("may be running with the inputs of another row.",), "the result", "has completed", 4, tries=3
    ),
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
    Ends("success", (REATTACHED, KICK_OFF_ANEW), "the kickoff id", "goes on", tries=2),
    ways=("kickoff",),
    forgotten={"kickoff": paid_again("the kickoff id")},
)
def test_kickoff_cleared_after_success(scene):
    scene.start()
    scene.clear("success")


@row(
    "The kickoff task is cleared after it has succeeded, and the crew has completed",
    Ends("success", ("The crew is kicked off anew.",), "the kickoff id", "goes on", kickoffs=2, tries=2),
    ways=("kickoff",),
    forgotten={"kickoff": paid_again("the kickoff id")},
)
def test_kickoff_cleared_after_completion(scene):
    scene.start()
    scene.finish()
    scene.clear("success")


@row(
    "The task is cleared after the crew has failed",
    {
        "deferred": Ends(
            "success", (FAILED, "is kicked off anew"), "the result", "has completed", kickoffs=2, tries=2
        ),
        "sensor deferred": Ends(
            "failed", ("[1] CrewTaskFailed", "[2] CrewTaskFailed", FAILED), "nothing", "has failed", tries=2
        ),
    },
    ways=("deferred", "sensor deferred"),
    scenario=FAILING,
    retries=0,
    forgotten={"deferred": paid_again(says=(FAILED,))},
)
def test_cleared_after_failure(scene):
    scene.start()
    scene.wait_for("failed")
    scene.crew.scenario = Scenario.model_validate(FAILING.model_dump() | {"tasks": [{"name": "writing_task"}]})
    scene.clear("failed")


@row(
    "The time to wait (timeout) is over, and the task is cleared",
    dict.fromkeys(RUN, GONE_ON_WITH) | dict.fromkeys(SENSOR, WAITED_ON),
    ways=(*RUN, *SENSOR),
    retries=0,
    timeout=15,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_cleared_after_a_time_out(scene):
    scene.start()
    scene.wait_for("failed")
    log = scene.log()
    assert STILL_GOING in log
    advice = f"So does {CLEARING}" if scene.task_id == "report" else "Clear this task to wait again"
    assert advice in log
    scene.finish()
    scene.clear("failed")


@row(
    "The time to wait (timeout) of a sensor with soft_fail is over",
    Ends("skipped", (STILL_GOING, "The task is skipped, as soft_fail says."), "nothing", "goes on"),
    ways=SENSOR,
    retries=2,
    timeout=15,
    soft_fail=True,
)
def test_soft_fail(scene):
    scene.start()


@row(
    "execution_timeout is over while the crew works",
    {
        way: Ends(
            "failed",
            (STILL_GOING, "It cannot be cancelled.", advice),
            left_by(way),
            "goes on",
        )
        for way, advice in [
            ("deferred", f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}."),
            ("sensor deferred", "it waits again for the same execution."),
        ]
    }
    | {
        way: Ends(
            "failed",
            ("was still going when ", "It cannot be cancelled.", advice),
            left_by(way),
            "goes on",
        )
        for way, advice in [
            ("sync", f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}."),
            ("sensor poke", "it waits again for the same execution."),
        ]
    },
    ways=(*RUN, "sensor deferred", "sensor poke"),
    retries=0,
    execution_timeout=Code("datetime.timedelta(seconds=20)"),
)
def test_execution_timeout(scene):
    scene.start()


@row(
    "The task is marked as failed while it waits",
    {
        "deferred": Ends("failed", (NOT_WATCHED, ELSEWHERE), "the kickoff id only", "goes on"),
        "sync": Ends("failed", (TO_END, ELSEWHERE), "the kickoff id only", "goes on"),
        "sensor deferred": Ends("failed", (NOT_WATCHED, ELSEWHERE), "nothing", "goes on"),
        "sensor poke": Ends("failed", (TO_END,), "nothing", "goes on"),
    },
    ways=(*RUN, "sensor deferred", "sensor poke"),
    retries=2,
)
def test_marked_as_failed(scene):
    _marked(scene, "failed")


@row(
    "The task is marked as a success while it waits",
    {
        "deferred": Ends("success", (NOT_WATCHED, ELSEWHERE), "the kickoff id only", "goes on"),
        "sync": Ends("success", (TO_END, ELSEWHERE), "the kickoff id only", "goes on"),
    },
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
    scene.tells("not watched any more" if "deferred" in scene.way else "the task is to end")


@row(
    "The task is marked as failed while it waits, and is cleared later",
    {"deferred": GONE_ON_WITH, "sync": GONE_ON_WITH},
    ways=RUN,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_marked_as_failed_and_cleared(scene):
    _marked(scene, "failed")
    scene.clear("failed")
    scene.finish()


@row(
    "The map_index_template of the task cannot be rendered",
    Ends(
        "success",
        ("map_index_template cannot be rendered: 'no_such_name' is undefined",),
        "the result",
        "has completed",
    ),
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
    Ends("success", (REATTACHED, KICK_OFF_ANEW), "the result", "has completed", tries=2),
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
    Ends("success", (REATTACHED, KICK_OFF_ANEW), "the result", "has completed", tries=3),
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


@row(
    "The DAG is paused while the task is deferred, and unpaused when the crew has long completed",
    Ends("success", ("Execution {id}: completed",), "the result", "has completed"),
)
def test_paused(scene):
    scene.start()
    scene.wait_for("deferred")
    scene.pause()
    scene.finish()
    scene.wait_for("scheduled")
    scene.pause(paused=False)


@row(
    "A task that has succeeded is cleared after its retries were lowered",
    Ends("success", (REATTACHED, KICK_OFF_ANEW), "the result", "has completed", tries=2),
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
    Ends("success", (LOST_ANSWER,), "the result", "has completed", kickoffs=2, tries=3),
    retries=1,
)
def test_retries_raised(scene):
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()
    scene.execution()
    scene.kill()
    scene.wait_for("failed")
    scene.rewrite_dag({"retries": 3})
    scene.clear("failed")
    scene.finish(2)


@row(
    "Retries are raised between the death of the worker, before the answer to a kickoff, and the retry",
    Ends("failed", (LOST_ANSWER,), "nothing", "goes on", tries=2),
    retries=1,
    retry_delay=Code("datetime.timedelta(seconds=30)"),
)
def test_retries_raised_before_a_retry(scene):
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()
    scene.execution()
    scene.kill()
    scene.wait_for("up_for_retry")
    scene.rewrite_dag({"retries": 5, "retry_delay": Code("datetime.timedelta(seconds=1)")})


@row(
    "The service stays away for longer than max_outage, until all retries are used up",
    {
        way: Ends("failed", ("Execution {id}: there was no usable answer for",), left_by(way), "goes on", tries=2)
        for way in (*RUN, "sensor deferred", "sensor poke")
    },
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
    Ends("removed", (NOT_WATCHED, ELSEWHERE), "nothing", "goes on"),
    ways=("sensor deferred",),
    alone=True,
    why="Airflow ends the run as a success. Its triggerer may fail over such a task: apache/airflow#69841.",
)
def test_task_removed(scene):
    scene.start()
    scene.wait_for("deferred")
    scene.looked()
    scene.rewrite_dag({}, without="result")
    scene.tells("not watched any more")


@row(
    "The DAG file is deleted while the task is deferred, and comes back when the crew has completed",
    {
        "deferred": Ends("success", (REATTACHED,), "the result", "has completed"),
        "sensor deferred": Ends("success", ("Execution {id}: completed",), "the result", "has completed"),
    },
    ways=("deferred", "sensor deferred"),
)
def test_dag_file_deleted(scene):
    scene.start()
    scene.wait_for("deferred")
    scene.looked()
    scene.file.unlink()
    scene.finish()
    # Airflow cannot resume a task whose file is not there, and puts it off.
    scene.wait_for("up_for_reschedule")
    scene.rewrite_dag({})
