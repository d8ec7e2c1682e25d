"""Another part of Airflow is down."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

import psutil

from tests.airflow_runs import eventually
from tests.faults.harm import no_api_server, whole
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, UNCERTAIN, row
from tests.faults.scenes import PAUSE, Code

_STARTED_AGAIN = "Airflow's LocalExecutor does not adopt the tasks of another scheduler, but starts them again."
_ENDS_WITHOUT_DATABASE = (
    "Airflow's scheduler ends without its database, and with it the workers of a LocalExecutor."
)
_OUTAGE = 20


@contextmanager
def database_down(airflow, database):
    database.crash()
    began = time.monotonic()
    yield
    time.sleep(max(_OUTAGE + began - time.monotonic(), 0))
    database.start()
    # Without a database, the scheduler ends only after its workers. A liveness probe would kill it.
    airflow.processes["scheduler"].kill()
    whole(airflow, database)


@contextmanager
def scheduler_replaced(airflow, database):
    """Kill the scheduler, but not the workers that it has started."""
    pid = airflow.processes["scheduler"].pid
    ports = [connection.laddr.port for connection in psutil.Process(pid).net_connections("tcp")]
    os.kill(pid, signal.SIGKILL)
    # Its workers inherited its connections, so PostgreSQL would keep its locks until they end.
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = ANY(%s)", ports)
    another = airflow.start_another("scheduler")
    yield
    another.stop(grace=30)
    whole(airflow, database)


@row(COMPLETED, harm=database_down, retries=0)
def test_completes_without_database(scene):
    """An execution completes while the database is down for 20 seconds."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.finish()


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync", "sensor poke"),
    harm=database_down,
    executor="local",
    why=_ENDS_WITHOUT_DATABASE,
    retries=1,
)
def test_database_down_while_waiting(scene):
    """The database is down for 20 seconds while a task waits in a worker."""
    scene.start()
    scene.execution()
    scene.looked()
    with scene.harmed():
        pass
    scene.wait_for("running", tries=2)
    scene.finish()


@row(
    UNCERTAIN,
    ways=RUN,
    harm=scheduler_replaced,
    executor="local",
    why=_STARTED_AGAIN,
    retries=2,
    cost="unknown",
)
def test_scheduler_replaced_before_answer(scene):
    """Only the scheduler is killed before the answer to a kickoff."""
    scene.start_and_hold("kickoff")
    with scene.harmed():
        scene.wait_for("failed")


_WORKERS_GIVE_UP = (
    "Airflow ends a task after three failed heartbeats (`[workers] max_failed_heartbeats`), within two "
    "minutes. apache/airflow#73244 proposes a longer limit."
)
_FAILED_BY_SCHEDULER = (
    "Airflow cannot resume a task without its API server, so its scheduler fails the task: apache/airflow#53797."
)
# A retry that starts while the API server is down fails at once.
_LATER = Code("datetime.timedelta(minutes=2)")


def _ended(process):
    """Wait until a process that was found before has ended."""
    eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, pause=PAUSE)


@row(COMPLETED_IN_ATTEMPT_2, harm=no_api_server, why=_FAILED_BY_SCHEDULER, retries=0, forgotten=("deferred",))
def test_trigger_fires_without_api_server(scene):
    """An execution completes while the API server is down, and the task is cleared later."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.looked(3)  # the triggerer does not need it
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
