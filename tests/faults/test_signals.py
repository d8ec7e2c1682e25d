"""The task gets SIGTERM, or execution_timeout passes, in the worker."""

from __future__ import annotations

import signal
import time
from contextlib import closing

import psycopg2  # type: ignore[import-untyped]

from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import Code, never_stopped

EIGHT_SECONDS = Code("datetime.timedelta(seconds=8)")
TEN_SECONDS = Code("datetime.timedelta(seconds=10)")
WHY_IT_RUNS_ON = (
    "Airflow calls `on_kill` and lets the task run until it ends or is killed (apache/airflow#73006). "
    "Nothing is lost: the task returns the result if it arrives in time, or else the next attempt reattaches."
)


@row(COMPLETED_IN_ATTEMPT_2, ways=("deferred", "kickoff"), retries=1)
def test_asked_to_end_before_the_kickoff(scene):
    """The task gets SIGTERM before the kickoff is sent."""
    scene.crew.faults.hang(on="inputs", seconds=10)
    scene.start()
    scene.asked("inputs")
    scene.kill(number=signal.SIGTERM)
    scene.finish()


@row(COMPLETED, ways=(*RUN, "kickoff"), why=WHY_IT_RUNS_ON, retries=1)
def test_asked_to_end_before_the_answer(scene):
    """The task gets SIGTERM before the answer to its kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=10)
    scene.start()
    scene.execution()
    scene.kill(number=signal.SIGTERM)
    scene.finish()


@row(COMPLETED, why=WHY_IT_RUNS_ON, retries=1)
def test_supervisor_asked_to_end_before_the_answer(scene):
    """The task's supervisor gets SIGTERM before the answer to the kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=10)
    scene.start()
    scene.execution()
    scene.process().parent().send_signal(signal.SIGTERM)
    scene.finish()


@row(COMPLETED, ways=("sync", "sensor poke"), why=WHY_IT_RUNS_ON, retries=1, cancel_on_kill=True)
def test_asked_to_end_while_the_crew_works(scene):
    """The task gets SIGTERM while it waits for the crew."""
    scene.start()
    scene.looked(2)
    scene.kill(number=signal.SIGTERM)
    scene.looked(2)
    scene.finish()
    never_stopped(scene)


@row(COMPLETED_IN_ATTEMPT_2, ways=(*RUN, "kickoff"), retries=1, execution_timeout=EIGHT_SECONDS)
def test_timed_out_before_the_answer(scene):
    """`execution_timeout` passes before the answer to a kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=15)
    scene.start()
    scene.finish()


@row(
    Ends("failed", "nothing", "running"), ways=("deferred", "kickoff"), retries=1, execution_timeout=EIGHT_SECONDS
)
def test_timed_out_before_no_answer(scene):
    """`execution_timeout` passes before the answer to a kickoff, and none arrives."""
    scene.connect(extra={"request_timeout": 15})
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()


# Another transaction that stores the same record makes the API server wait for it.
_SAME_RECORD = """
    INSERT INTO task_state_store (dag_run_id, task_id, map_index, key, dag_id, run_id, value, updated_at)
    SELECT id, %s, -1, 'crew_kickoff', dag_id, run_id, '{}', now() FROM dag_run WHERE dag_id = %s AND run_id = %s
"""
_WAITS_FOR = "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "kickoff"),
    needs_store=("deferred", "kickoff"),
    retries=1,
    execution_timeout=TEN_SECONDS,
)
def test_timed_out_while_the_record_is_stored(scene):
    """`execution_timeout` passes while Airflow stores the kickoff record."""
    scene.airflow.api.wait_for_dag(scene.dag_id)
    scene.start()
    with closing(psycopg2.connect(scene.database.url)) as storing, storing.cursor() as cursor:
        cursor.execute(_SAME_RECORD, (scene.task_id, scene.dag_id, scene.run.run_id))
        eventually(lambda: scene.database.execute(_WAITS_FOR, storing.info.backend_pid), pause=0.2)
        time.sleep(12)
        storing.rollback()
    scene.execution()
    assert [kickoff.meta["airflow"]["try_number"] for kickoff in scene.crew.kickoffs] == [2]
    scene.finish()
