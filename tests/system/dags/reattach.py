"""Tasks whose tries may share one execution."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

INPUTS = {"topic": "ferries", "audience": "sailors"}
COMMON: dict[str, Any] = {"task_id": "report", "inputs": INPUTS, "crew_conn_id": "crew_slow", "poll_interval": 1}

with DAG("reattach_cleared", schedule=None):
    CrewRunOperator(deferrable=True, **COMMON)

# A cluster policy replaces its callbacks (tests/system/conftest.py).
with DAG("reattach_policy", schedule=None):
    CrewRunOperator(deferrable=True, **COMMON)

# A cluster policy sets the retries of the second task (tests/system/conftest.py).
with DAG("retried", schedule=None):
    CrewRunOperator.partial(task_id="mapped", crew_conn_id="crew_slow", retries=2).expand(inputs=[INPUTS])
    CrewRunOperator(**COMMON)

# Airflow may begin it once more although it has no retries.
with DAG("lost_scheduler", schedule=None):
    CrewRunOperator(deferrable=False, retries=0, **COMMON)
