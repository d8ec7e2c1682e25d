"""Airflow's own least for two tasks: one that returns something, and a deferred one that waits."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG, task

from benchmarks.cost_lanes import INPUTS, LANES, LATER


@task
def returns() -> dict[str, str]:
    """Return something."""
    return INPUTS


with DAG("airflow_returns_and_waits", schedule=None):
    for lane in range(LANES):
        returned = returns.override(task_id=f"kickoff_{lane}")()
        returned >> TimeDeltaSensor(task_id=f"result_{lane}", delta=timedelta(seconds=LATER), deferrable=True)
