"""Tasks whose executions a collector of traces gets: in each way to wait, and in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewBatchOperator, CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.versions import HAS_STORE

INPUTS = {"topic": "ferries", "audience": "sailors"}
COMMON: dict[str, Any] = {"crew_conn_id": "crew_brief", "poll_interval": 0.5}

with DAG("traces", schedule=None, max_active_tasks=100):
    CrewRunOperator(task_id="worker", inputs=INPUTS, **COMMON)
    CrewRunOperator(task_id="deferred", inputs=INPUTS, deferrable=True, **COMMON)
    if HAS_STORE:
        CrewBatchOperator(
            task_id="batch",
            inputs=[INPUTS, {**INPUTS, "topic": "buoys"}],
            key="topic",
            result_path=str(Path(__file__).with_name("results-{{ run_id }}")),
            deferrable=True,
            **COMMON,
        )
    kickoff = CrewKickoffOperator(task_id="kickoff", inputs=INPUTS, crew_conn_id="crew_brief")
    CrewExecutionSensor(
        task_id="sensor", kickoff_id=kickoff.output, crew_conn_id="crew_brief", poke_interval=0.5, deferrable=True
    )
