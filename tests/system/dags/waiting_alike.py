"""The same waits in every mode: operator deferred and not, sensor deferred, poking and rescheduled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

SENSOR_MODES: dict[str, dict[str, Any]] = {
    "deferred": {"deferrable": True},
    "poke": {"deferrable": False, "mode": "poke"},
    "reschedule": {"deferrable": False, "mode": "reschedule"},
}
OPERATOR_MODES: dict[str, dict[str, Any]] = {"deferred": {"deferrable": True}, "sync": {"deferrable": False}}

# Which execution (or, for the operator, which crew), and how it is waited for.
SENSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "completed": ("completed", {}),
    "failed": ("failed", {}),
    "failed_soft": ("failed", {"soft_fail": True}),
    "failed_never": ("failed", {"never_fail": True}),
    "slow": ("slow", {"timeout": 12}),
    "slow_soft": ("slow", {"timeout": 12, "soft_fail": True}),
    "unknown": ("unknown", {}),
    "unknown_soft": ("unknown", {"soft_fail": True}),
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "completed": ("default", {}),
    "failed": ("failing", {}),
    "slow": ("slow", {"timeout": 4}),
}

with DAG(
    "waiting_alike",
    schedule=None,
    max_active_tasks=100,
    params={"ids": {}},
    default_args={"retries": 1, "retry_delay": timedelta(seconds=1)},
):
    for mode, how in SENSOR_MODES.items():
        for name, (execution, options) in SENSORS.items():
            CrewExecutionSensor(
                task_id=f"sensor_{name}_{mode}",
                kickoff_id=f"{{{{ params.ids.{execution} }}}}",
                crew_conn_id="crew_slow",
                poke_interval=2,
                **how,
                **options,
            )
    for mode, how in OPERATOR_MODES.items():
        for name, (crew, options) in RUNS.items():
            CrewRunOperator(
                task_id=f"run_{name}_{mode}",
                inputs={"topic": "ferries", "audience": "sailors"},
                crew_conn_id=f"crew_{crew}",
                poll_interval=1,
                **how,
                **options,
            )
