"""One task that starts a job of dbt Cloud, and waits for it in the triggerer. It returns the run's number."""

from __future__ import annotations

from airflow.providers.dbt.cloud.operators.dbt import DbtCloudRunJobOperator
from airflow.sdk import DAG

from benchmarks.cost_lanes import LANES, POLL_INTERVAL

with DAG("dbt_cloud_run", schedule=None):
    for lane in range(LANES):
        DbtCloudRunJobOperator(
            task_id=f"result_{lane}", job_id=7, account_id=1, deferrable=True, check_interval=POLL_INTERVAL
        )
