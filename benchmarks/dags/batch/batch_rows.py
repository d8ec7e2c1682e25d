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

for name, number, max_active, poll_interval, deferrable in (
    ("batch_rows", ROWS, MAX_ACTIVE, POLL_INTERVAL, True),
    ("many_rows", MANY, MANY_ACTIVE, None, False),
    ("long_rows", LONG, MANY_ACTIVE, None, True),
):
    with DAG(name, schedule=None):
        CrewBatchOperator(
            task_id="score",
            inputs=rows(number),
            key="topic",
            result_path="/tmp/bench-batch/{{ run_id }}",  # noqa: S108 - deleted by the benchmark
            deferrable=deferrable,
            max_active=max_active,
            poll_interval=poll_interval,
        )
