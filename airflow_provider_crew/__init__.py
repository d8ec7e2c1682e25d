"""Run CrewAI crews and flows from Apache Airflow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_crew.batch.operator import CrewBatchOperator
    from airflow_provider_crew.decorators.crew import crew_task
    from airflow_provider_crew.hooks.crew import CrewHook
    from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
    from airflow_provider_crew.sensors.crew import CrewExecutionSensor

__all__ = [
    "CrewBatchOperator",
    "CrewExecutionSensor",
    "CrewHook",
    "CrewKickoffOperator",
    "CrewRunOperator",
    "crew_task",
]
__version__ = "0.1.0"

_ROOMS = {
    "CrewBatchOperator": "batch.operator",
    "CrewExecutionSensor": "sensors.crew",
    "CrewHook": "hooks.crew",
    "CrewKickoffOperator": "operators.crew",
    "CrewRunOperator": "operators.crew",
    "crew_task": "decorators.crew",
}


def __getattr__(name: str) -> Any:
    """Import an exported name on first use, which keeps DAG parsing fast."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
