"""A task without retries, which Airflow may begin once more all the same."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG("lost_scheduler", schedule=None):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "ferries", "audience": "sailors"},
        crew_conn_id="crew_slow",
        poll_interval=1,
        deferrable=False,
        retries=0,
    )
