"""A task with cancel_on_kill or cancel_on_timeout cancels its execution, or must not."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from airflow_provider_crew.client.progress import PROGRESS
from tests.airflow_runs import eventually
from tests.faults.harm import suspended, without
from tests.faults.rows import ANY, COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, Way, row
from tests.faults.scenes import PAUSE, Code, never_stopped, waiting
from tests.supported import AIRFLOW

IN_TWENTY_SECONDS = Code("datetime.timedelta(seconds=20)")
SENSORS: tuple[Way, ...] = ("sensor deferred", "sensor poke")
WAITS = (*RUN, *SENSORS)
CANCELLED = Ends("failed", "only the kickoff ID", "revoked")
ALWAYS: dict[str, Any] = {"cancel_on_kill": True, "cancel_on_timeout": True}
BY_TRIGGER: tuple[Way, ...] = ("deferred", "sensor deferred")


@row(CANCELLED, ways=WAITS, core=RUN, retries=2, before_3_3=("sensor poke",), cost=ANY, **ALWAYS)
def test_cancel_marked_as_failed(scene):
    """The task is marked as failed while it waits."""
    waiting(scene)
    scene.mark("failed")
    scene.answered("stop")
    if AIRFLOW[:2] == (3, 3):  # Airflow 3.4 stores no XCom of a task that has ended
        eventually(lambda: (scene.xcom(PROGRESS)["end"] or {}).get("error") == "ExecutionCancelled")


@row(CANCELLED, ways=("sync", "kickoff"), retries=2, cost=ANY, **ALWAYS)
def test_cancel_marked_before_the_answer(scene):
    """The task is marked as failed before the answer to its kickoff."""
    held = scene.start_and_hold("kickoff")
    process = scene.process()
    scene.mark("failed")
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.5)
    held.release()
    scene.answered("stop")


@row(CANCELLED, ways=WAITS, retries=0, execution_timeout=IN_TWENTY_SECONDS, cancel_on_timeout=True, cost="ended")
def test_cancel_after_execution_timeout(scene):
    """`execution_timeout` passes, and there is no retry."""
    scene.start()
    scene.answered("stop")


@row(COMPLETED_IN_ATTEMPT_2, ways=WAITS, core=RUN, forgotten=("deferred",), before_3_3=SENSORS, **ALWAYS)
def test_cancel_not_when_cleared(scene):
    """The task is cleared while it waits."""
    waiting(scene)
    scene.run.clear(scene.task_id)
    eventually(lambda: scene.task["try_number"] == 2, pause=PAUSE)
    scene.looked(2)
    if scene.forgets and scene.way == "deferred":
        scene.execution(2)
    for kickoff in scene.crew.kickoffs:
        scene.crew.finish(kickoff.kickoff_id)
    never_stopped(scene)


# The next one starts the trigger of a task that no longer waits, unless the old one may still be alive.
no_triggerer = without("triggerer", grace=60)


@row(COMPLETED, ways=BY_TRIGGER, harm=no_triggerer, core=True, before_3_3=BY_TRIGGER, **ALWAYS)
def test_cancel_not_when_the_triggerer_restarts(scene):
    """The triggerer restarts while it polls."""
    waiting(scene)
    with scene.harmed():
        pass
    scene.looked(2)
    scene.finish()
    never_stopped(scene)


@row(CANCELLED, ways=BY_TRIGGER, harm=no_triggerer, **ALWAYS)
def test_cancel_marked_without_a_triggerer(scene):
    """The task is marked as failed while no triggerer is running."""
    waiting(scene)
    with scene.harmed():
        scene.mark("failed")
    scene.answered("stop")


@row(
    Ends("failed", "only the kickoff ID", "running", tries=2),
    ways=BY_TRIGGER,
    harm=suspended("triggerer"),
    cost="running",
    **ALWAYS,
)
def test_cancel_not_when_the_triggerer_is_slow(scene):
    """The task is cleared, and the next attempt gives up, before the triggerer notices."""
    waiting(scene)
    scene.rewrite_dag(ALWAYS | {"deferrable": False, "cancel_on_timeout": False, "timeout": 5, "retries": 0})
    with scene.harmed():
        scene.run.clear(scene.task_id)
        scene.wait_for("failed", tries=2)
    never_stopped(scene)
