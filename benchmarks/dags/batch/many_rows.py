"""One task for ten thousand rows."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewBatchOperator
from benchmarks.batch_rows import MANY, MANY_ACTIVE, MANY_POLL_INTERVAL, rows

with DAG("many_rows", schedule=None):
    CrewBatchOperator(
        task_id="score",
        inputs=rows(MANY),
        key="topic",
        result_path="/tmp/bench-batch/{{ run_id }}",  # noqa: S108 - deleted by the benchmark
        deferrable=True,
        max_active=MANY_ACTIVE,
        poll_interval=MANY_POLL_INTERVAL,
    )
