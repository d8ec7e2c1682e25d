"""
A crew service on your own machine, for development, tests and the demo.

It speaks the interface of a deployed crew, misbehaves on demand, and remembers what it was sent. Nothing here
uses Airflow or this package's own client, so what the client gets right here is not right by agreement.

The names are loaded on first use: pytest loads this package in every session of whoever asks for its plugin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_crew.local.faults.calls import Faults
    from airflow_provider_crew.local.scenario import CrewInput, Scenario, ScenarioError, ScenarioTask
    from airflow_provider_crew.local.server import LocalCrewService

__all__ = ["CrewInput", "Faults", "LocalCrewService", "Scenario", "ScenarioError", "ScenarioTask"]

_HOMES = {
    "CrewInput": "scenario",
    "Faults": "faults.calls",
    "LocalCrewService": "server",
    "Scenario": "scenario",
    "ScenarioError": "scenario",
    "ScenarioTask": "scenario",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
