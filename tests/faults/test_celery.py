"""Airflow runs on Celery, with two schedulers, two triggerers and two workers."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from functools import partial
from typing import Any

from dev.distributed import address_of
from tests.airflow_runs import eventually
from tests.faults.harm import whole, without
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, UNCERTAIN, Ends, row
from tests.faults.scenes import PAUSE, Code

celery_row = partial(row, executor="celery", core=True)

_OUTAGE = 60
# A Celery worker ends with the last of its tasks.
_LONGEST_SHUTDOWN = 120
_KICKS_OFF: Any = (*RUN, "kickoff")
# Both, with their child processes, so that all tasks are killed.
workers_killed = without("worker")


@contextmanager
def workers_shut_down(airflow, database):
    """Shut both down (warm), as stopping a pod does: they accept no task, and finish their own."""
    workers = airflow.all_of("worker")
    for worker in workers:
        os.kill(worker.pid, signal.SIGTERM)
    yield
    eventually(lambda: not any(worker.running for worker in workers), seconds=_LONGEST_SHUTDOWN, pause=PAUSE)
    whole(airflow, database)


@celery_row(Ends("success", "the result", "completed", kickoffs=12), ways=RUN, mapped=12, retries=0)
def test_tasks_run_on_both_workers(scene):
    """Twelve mapped tasks run on two Celery workers, each of which has room for eight."""
    scene.start()
    scene.wait_until_over(finishing=True)
    workers = {address_of(worker.name) for worker in scene.airflow.all_of("worker")}
    assert {task["hostname"] for task in scene.tasks} == workers


@celery_row(UNCERTAIN, ways=_KICKS_OFF, harm=workers_killed, retries=2, cost="unknown")
def test_celery_worker_killed_before_the_answer(scene):
    """A Celery worker is killed with its child processes before the answer to a kickoff."""
    scene.start_and_hold("kickoff")
    with scene.harmed():
        pass


@celery_row(COMPLETED, ways=_KICKS_OFF, harm=workers_shut_down, retries=0)
def test_warm_shutdown_before_the_answer(scene):
    """A Celery worker shuts down (warm) before the answer to a kickoff."""
    held = scene.start_and_hold("kickoff")
    with scene.harmed():
        time.sleep(5)
        held.release()
        if scene.way == "deferred":
            scene.wait_for("deferred")
        else:
            scene.finish()
            scene.wait_for("success")
    scene.finish()


@contextmanager
def broker_down(airflow, database):
    airflow.broker.crash()
    began = time.monotonic()
    yield
    time.sleep(max(_OUTAGE + began - time.monotonic(), 0))
    whole(airflow, database)


@contextmanager
def delivered_twice(airflow, database):
    """Let the broker deliver each task again that a worker has had for some seconds."""
    impatient = {"AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT": "5"}
    another = airflow.start_another("worker", impatient)
    yield
    another.stop(grace=30)
    whole(airflow, database)


@celery_row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("deferred", "sensor deferred"),
    harm=broker_down,
    why="Airflow fails a task that it cannot send to the broker, so set `retries` and a longer `retry_delay`.",
    retries=1,
    retry_delay=Code(f"datetime.timedelta(seconds={_OUTAGE + 15})"),
)
def test_completes_without_broker(scene):
    """An execution completes while the broker is down for a minute."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.finish()
        scene.wait_for("up_for_retry")


@celery_row(COMPLETED, ways=("sync", "sensor poke"), harm=delivered_twice, retries=0)
def test_delivered_twice_while_waiting(scene):
    """The broker delivers a task twice, because `visibility_timeout` is shorter than the wait."""
    scene.start()
    scene.looked(2)
    with scene.harmed():
        _wait_for_deliveries(scene, 2)
        scene.looked(2)
        scene.finish()
        scene.wait_for("success")


def _wait_for_deliveries(scene, times):
    """Wait until workers have received the task this often."""

    def delivered() -> int:
        logs = [file.read_text() for file in scene.airflow.logs.glob("worker*.log")]
        lines = [line for log in logs for line in log.splitlines() if "Executing workload in Celery" in line]
        return sum(f"'{scene.dag_id}'" in line and f"'{scene.task_id}'" in line for line in lines)

    eventually(lambda: delivered() >= times, pause=PAUSE)
