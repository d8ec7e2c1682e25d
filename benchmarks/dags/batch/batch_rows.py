"""One task for all rows."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewBatchOperator
from benchmarks.batch_rows import MAX_ACTIVE, POLL_INTERVAL, ROWS, rows

with DAG("batch_rows", schedule=None):
    CrewBatchOperator(
        task_id="score",
        inputs=rows(ROWS),
        key="topic",
        result_path="/tmp/bench-batch/{{ run_id }}",  # noqa: S108 - deleted by the benchmark
        deferrable=True,
        max_active=MAX_ACTIVE,
        poll_interval=POLL_INTERVAL,
    )
