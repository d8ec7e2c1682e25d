"""One task for all rows, and one for ten thousand."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.batch.operator import CrewBatchOperator
from benchmarks.batch_rows import (
    LONG,
    MANY,
    MANY_ACTIVE,
    MAX_ACTIVE,
    POLL_INTERVAL,
    ROWS,
    rows,
)

for name, number, max_active, poll_interval in (
    ("batch_rows", ROWS, MAX_ACTIVE, POLL_INTERVAL),
    ("many_rows", MANY, MANY_ACTIVE, None),
    ("long_rows", LONG, MANY_ACTIVE, None),
):
    with DAG(name, schedule=None):
        CrewBatchOperator(
            task_id="score",
            inputs=rows(number),
            key="topic",
            result_path="/tmp/bench-batch/{{ run_id }}",  # noqa: S108 - deleted by the benchmark
            deferrable=True,
            max_active=max_active,
            poll_interval=poll_interval,
        )
