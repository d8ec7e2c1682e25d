"""A mapped task for each row."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator
from benchmarks.batch_rows import MAX_ACTIVE, POLL_INTERVAL, ROWS, rows

with DAG("mapped_rows", schedule=None, max_active_tasks=ROWS):
    CrewRunOperator.partial(
        task_id="score", deferrable=True, poll_interval=POLL_INTERVAL, max_active_tis_per_dag=MAX_ACTIVE
    ).expand(inputs=rows(ROWS))
