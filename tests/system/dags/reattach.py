"""Tasks whose tries may share one execution."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator

COMMON: dict[str, Any] = {
    "inputs": {"topic": "ferries", "audience": "sailors"},
    "crew_conn_id": "crew_{{ params.crew }}",
    "retry_delay": timedelta(seconds=4),
}

with DAG("reattach", schedule=None, params={"crew": "slow", "retries": 0}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, retries=2, timeout=12, **COMMON)

with DAG("reattach_cleared", schedule=None, params={"crew": "slow"}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, **COMMON)

with DAG("reattach_unknown", schedule=None, params={"crew": "slow"}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, max_outage=3, **COMMON)

with DAG("reattach_uncertain", schedule=None, params={"crew": "uncertain"}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, retries=1, **COMMON)

with DAG("reattach_uncertain_retry", schedule=None, params={"crew": "uncertain"}):
    CrewRunOperator(
        task_id="report", deferrable=True, poll_interval=1, retries=1, on_uncertain_kickoff="retry", **COMMON
    )

with DAG("reattach_kickoff", schedule=None, params={"crew": "slow"}):
    CrewKickoffOperator(task_id="kickoff", **COMMON)

# A cluster policy replaces the callbacks of the first DAG (tests/system/conftest.py).
with DAG("reattach_policy", schedule=None, params={"crew": "slow"}):
    CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, **COMMON)

with DAG("reattach_assigned", schedule=None, params={"crew": "slow"}):
    assigned = CrewRunOperator(task_id="report", deferrable=True, poll_interval=1, **COMMON)
    assigned.on_success_callback = None  # type: ignore[assignment] # as people do

with DAG("reattach_mapped", schedule=None, params={"crew": "slow"}):

    @task
    def rows(ti=None):
        """Return the rows, in another order with each attempt."""
        topics = ["ferries", "harbours", "trams"]
        return [{"topic": topic, "audience": "sailors"} for topic in topics[:: 1 if ti.try_number == 1 else -1]]

    given = {name: value for name, value in COMMON.items() if name != "inputs"}
    CrewRunOperator.partial(task_id="report", deferrable=True, poll_interval=1, **given).expand(inputs=rows())
