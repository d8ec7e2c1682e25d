"""Tasks whose tries may share one execution."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

COMMON: dict[str, Any] = {
    "inputs": {"topic": "ferries", "audience": "sailors"},
    "crew_conn_id": "crew_{{ params.crew }}",
    "retry_delay": timedelta(seconds=4),
}

with DAG("reattach_cleared", schedule=None, params={"crew": "slow"}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, **COMMON)

# A cluster policy replaces the callbacks of the first DAG (tests/system/conftest.py).
with DAG("reattach_policy", schedule=None, params={"crew": "slow"}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, **COMMON)

with DAG("reattach_assigned", schedule=None, params={"crew": "slow"}):
    assigned = CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, **COMMON)
    assigned.on_success_callback = None  # type: ignore[assignment] # as people do
