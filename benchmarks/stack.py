"""A whole Airflow on PostgreSQL for the benchmarks, with the settings that Airflow itself comes with."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dev.postgres import PostgresServer
from dev.settings import environment
from dev.stack import AirflowStack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_DAGS = Path(__file__).parent / "dags"
# The stack for the demo is quicker than an Airflow that nobody has tuned; the benchmarks measure the latter.
_SET_BY_DEFAULT = {
    "AIRFLOW__CORE__PARALLELISM": "32",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "300",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "5",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "300",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "5",
}


@dataclass(frozen=True, slots=True)
class Benched:
    """What is started for a benchmark: an Airflow, its database, and what a process needs to join them."""

    airflow: AirflowStack
    database: PostgresServer
    environment: Mapping[str, str]


@contextmanager
def started(dags: str, settings: Mapping[str, str]) -> Iterator[Benched]:
    """Run an Airflow with a folder of DAGs in this package, and end it whatever happens."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, PostgresServer() as database:
        home = Path(folder) / "airflow"
        more = _SET_BY_DEFAULT | database.settings | dict(settings)
        with AirflowStack(home, _DAGS / dags, more) as airflow:
            # Only servers need the ports, and a process that joins serves nothing.
            yield Benched(airflow, database, environment(home, _DAGS / dags, port=0, log_port=0) | more)


def cpu_seconds(sessions: Iterable[int]) -> float:
    """
    Return the CPU time of the processes of these sessions so far, in user and in system mode.

    It includes the children that each has waited for, so that a task's process counts when it is long gone.
    """
    wanted = set(sessions)
    return sum(_with_children(pid) for pid in psutil.pids() if _session(pid) in wanted)


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU time of one process so far, without any other."""
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def _with_children(pid: int) -> float:
    try:
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
