"""A run whose executions complete, and one with each end that an example rule alerts on."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

INPUTS = {"topic": "ferries", "audience": "sailors"}
WAITS: dict[str, Any] = {"poll_interval": 1, "retries": 0}
COMPLETED = "metrics_completed"

with DAG("metrics_completed", schedule=None):
    CrewRunOperator(task_id="report", crew_conn_id=COMPLETED, inputs=INPUTS, **WAITS)

with DAG("metrics_alerting", schedule=None):
    CrewRunOperator.partial(task_id="many", crew_conn_id=COMPLETED, **WAITS).expand(inputs=[INPUTS] * 5)
    CrewRunOperator.partial(task_id="failed", crew_conn_id="metrics_failed", **WAITS).expand(inputs=[INPUTS] * 3)
    for name, options in {"uncertain": {}, "timeout": {"timeout": 2}, "lost": {"max_outage": 2}}.items():
        CrewRunOperator(task_id=name, crew_conn_id=f"metrics_{name}", inputs=INPUTS, **WAITS | options)
    CrewRunOperator(task_id="unknown", crew_conn_id="metrics_unknown", inputs=INPUTS, max_outage=2, **WAITS)
    CrewExecutionSensor(task_id="broken", crew_conn_id="metrics_broken", kickoff_id="never-started")
