"""Rounds of DAG runs in a whole Airflow, and the CPU time that its processes take for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.stack import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dev.stack import AirflowStack

IDLE_SECONDS = 60
_TIMEOUT = 300
# Each question about the state of a run adds to what is measured.
_PAUSE = 2.0
_SETTLING = 3.0


def in_turn(ways: Iterable[str], number: int) -> list[str]:
    """Return the ways; each round begins with another one."""
    each = list(ways)
    first = number % len(each)
    return each[first:] + each[:first]


def warm_up(airflow: AirflowStack, ways: Iterable[str]) -> None:
    """
    Let each way run once: the first processes of an Airflow find neither bytecode nor cached answers.

    One after the other: with all at once, a sensor of Airflow's own defers so late that its event is there before
    the executor has reported the deferral, and then Airflow fails the task.
    """
    for way in ways:
        airflow.api.wait_for_dag(way)
        succeed(airflow, way, airflow.api.trigger(way))


def succeed(airflow: AirflowStack, way: str, run_id: str) -> None:
    """Wait until a run has succeeded, and its last process is gone."""
    until = time.monotonic() + _TIMEOUT
    while (state := airflow.api.run_state(way, run_id)) != "success":
        if state == "failed" or time.monotonic() > until:
            tasks = {task["task_id"]: task["state"] for task in airflow.api.task_instances(way, run_id)}
            logs = [airflow.log_events(way, run_id, name)[-5:] for name in tasks if tasks[name] == "failed"]
            raise RuntimeError(f"The run of {way} is {state}: {tasks} {logs[:1]}")
        time.sleep(_PAUSE)
    time.sleep(_SETTLING)


def idle_cpu(airflow: AirflowStack) -> float:
    """Return what Airflow uses per second while nothing runs."""
    before = cpu(airflow)
    time.sleep(IDLE_SECONDS)
    return (cpu(airflow) - before) / IDLE_SECONDS


def cpu(airflow: AirflowStack) -> float:
    """Return what all of Airflow's processes have used so far, those of tasks that have ended included."""
    return cpu_seconds(process.pid for process in airflow.processes.values())
