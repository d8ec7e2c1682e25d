"""Airflow's own least: a task that returns something."""

from __future__ import annotations

from airflow.sdk import DAG, task

from benchmarks.cost_lanes import INPUTS, LANES


@task
def returns() -> dict[str, str]:
    """Return something."""
    return INPUTS


with DAG("airflow_returns", schedule=None):
    for lane in range(LANES):
        returns.override(task_id=f"result_{lane}")()
