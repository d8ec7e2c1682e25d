"""A crew of each kind, for a test that watches the pages from the first second to the last."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.versions import HAS_STORE

INPUTS = {"topic": "ferries", "audience": "sailors"}
COMMON: dict[str, Any] = {"deferrable": True, "poll_interval": 1}
ASKED: dict[str, Any] = {"inputs": INPUTS, "crew_conn_id": "crew_answering", "answer_in_airflow": True, **COMMON}


@task(pool="one_slot")
def hold(params: Any = None) -> None:
    """Take the only slot of the pool, once the crew's task has left it, until the test lets it go."""
    while not (Path(params["meet_in"]) / "let go").exists():
        time.sleep(0.2)


# A batch and answers need Airflow 3.3.
if HAS_STORE:
    with DAG("watched", schedule=None, params={"meet_in": ""}):
        CrewRunOperator(task_id="full_pool", inputs=INPUTS, pool="one_slot", priority_weight=2, **COMMON)
        hold()
        CrewRunOperator(task_id="answered", timeout=timedelta(days=3), **ASKED)
        CrewRunOperator(task_id="approved", response_timeout=12, on_response_timeout="approve", **ASKED)
        CrewRunOperator(task_id="timed_out", inputs=INPUTS, crew_conn_id="crew_slow", timeout=15, **COMMON)
        CrewRunOperator(task_id="failed", inputs=INPUTS, crew_conn_id="crew_ending", **COMMON)
        rows = [INPUTS | {"topic": f"port {number}"} for number in range(5)]
        where = "file://{{ params.meet_in }}/rows"
        CrewBatchOperator(task_id="batch", inputs=rows, result_path=where, pilot=2, max_failed=0, **COMMON)
