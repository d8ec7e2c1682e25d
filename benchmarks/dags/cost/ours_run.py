"""One task that kicks off, and waits in the triggerer."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator
from benchmarks.cost_lanes import INPUTS, LANES, POLL_INTERVAL

with DAG("ours_run", schedule=None):
    for lane in range(LANES):
        CrewRunOperator(task_id=f"result_{lane}", inputs=INPUTS, deferrable=True, poll_interval=POLL_INTERVAL)
