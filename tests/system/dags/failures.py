"""Tasks that cannot succeed, each with retries that most of them must not burn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

INPUTS = {"topic": "ferries", "audience": "sailors"}

KICKOFFS: dict[str, dict[str, Any]] = {
    "missing_input": {"inputs": {"topik": "ferries", "audience": "sailors"}},
    "no_json": {"inputs": {**INPUTS, "topic": [1, {"on": datetime(2026, 1, 1, tzinfo=UTC)}]}},
    "no_mapping": {"inputs": "{{ params }}"},
    "refused_token": {"inputs": INPUTS, "crew_conn_id": "crew_refused"},
    "no_connection": {"inputs": INPUTS, "crew_conn_id": "crew_of_nobody"},
    "no_user_token": {"inputs": INPUTS, "token_type": "user"},
    "nobody_there": {"inputs": INPUTS, "crew_conn_id": "crew_away"},
}

with DAG(
    "failures",
    schedule=None,
    max_active_tasks=100,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=1)},
):
    for name, options in KICKOFFS.items():
        CrewKickoffOperator(task_id=f"kickoff_{name}", **options)
    nothing: Any = None
    CrewExecutionSensor(task_id="sensor_nothing", kickoff_id=nothing)
    CrewExecutionSensor(task_id="sensor_odd_id", kickoff_id="a\tb")
    CrewRunOperator(
        task_id="run_execution_timeout_deferred",
        inputs=INPUTS,
        crew_conn_id="crew_slow",
        deferrable=True,
        poll_interval=1,
        retries=0,
        execution_timeout=timedelta(seconds=15),
    )
    CrewRunOperator(
        task_id="run_execution_timeout_sync",
        inputs=INPUTS,
        crew_conn_id="crew_slow",
        deferrable=False,
        poll_interval=1,
        retries=0,
        execution_timeout=timedelta(seconds=15),
    )
