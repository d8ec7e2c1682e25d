"""
Local server, for development, tests and the demo.

It has the API of a deployed crew, fails on demand and records the requests it receives. It uses neither
Airflow nor this package's own client, so a mistake in the client can't be hidden by the same mistake here.

Names are loaded on first use, because pytest imports this package in every session that uses its plugin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_crew.local.faults.calls import Faults
    from airflow_provider_crew.local.scenario import CrewInput, Scenario, ScenarioError, ScenarioTask, When
    from airflow_provider_crew.local.server import LocalCrewService

__all__ = ["CrewInput", "Faults", "LocalCrewService", "Scenario", "ScenarioError", "ScenarioTask", "When"]

_HOMES = {
    "CrewInput": "scenario",
    "Faults": "faults.calls",
    "LocalCrewService": "server",
    "Scenario": "scenario",
    "ScenarioError": "scenario",
    "ScenarioTask": "scenario",
    "When": "scenario",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
