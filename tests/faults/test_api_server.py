"""Airflow's API server is down or hangs."""

from __future__ import annotations

import time

import psutil

from tests.airflow_runs import eventually
from tests.faults.harm import no_api_server, suspended
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, UNCERTAIN, row
from tests.faults.scenes import PAUSE, Code

_WORKERS_GIVE_UP = (
    "Airflow ends a task after three failed heartbeats (`[workers] max_failed_heartbeats`), within two "
    "minutes. apache/airflow#73244 proposes a longer limit."
)
_FAILED_BY_SCHEDULER = (
    "Airflow cannot resume a task without its API server, so its scheduler fails the task: apache/airflow#53797."
)
# A retry that starts while the API server is down fails at once.
_LATER = Code("datetime.timedelta(minutes=2)")
# Shorter than the 30 seconds after which Airflow, as configured here, ends a silent task.
api_server_hangs = suspended("api-server", 15)


def _ended(process):
    """Wait until a process that was found before has ended."""
    eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, pause=PAUSE)


@row(COMPLETED, ways=("deferred", "sensor deferred"), harm=no_api_server, core=(), retries=0)
def test_api_server_away_while_deferred(scene):
    """The API server is down while a task is deferred."""
    scene.start(until="deferred")
    with scene.harmed():
        # The triggerer does not need it.
        scene.looked(3)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, harm=no_api_server, why=_FAILED_BY_SCHEDULER, retries=0, forgotten=("deferred",))
def test_trigger_fires_without_api_server(scene):
    """An execution completes while the API server is down, and the task is cleared later."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.finish()
        # Time for the trigger to fire, and for Airflow to give up starting the task.
        scene.looked()
        time.sleep(60)
    scene.wait_for("failed")
    scene.run.clear(scene.task_id)
    if scene.forgets:
        scene.finish(2)
    scene.wait_for("success", tries=2)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync",),
    harm=no_api_server,
    why=_WORKERS_GIVE_UP,
    retries=1,
    retry_delay=_LATER,
)
def test_result_without_api_server(scene):
    """An execution completes while the API server is down, so the task cannot return its result."""
    scene.start()
    process = scene.process()
    scene.looked()
    with scene.harmed():
        scene.finish()
        _ended(process)


@row(
    UNCERTAIN,
    ways=(*RUN, "kickoff"),
    harm=no_api_server,
    why=_WORKERS_GIVE_UP,
    retries=2,
    retry_delay=_LATER,
    cost="unknown",
)
def test_answer_without_api_server(scene):
    """The crew answers a kickoff while the API server is down for longer than workers tolerate."""
    held = scene.start_and_hold("kickoff")
    process = scene.process()
    with scene.harmed():
        held.release()
        _ended(process)


@row(COMPLETED, ways=RUN, harm=api_server_hangs, retries=0)
def test_api_server_hangs_at_answer(scene):
    """The API server hangs for 15 seconds when the crew answers a kickoff."""
    held = scene.start_and_hold("kickoff")
    with scene.harmed():
        held.release()
    scene.finish()
