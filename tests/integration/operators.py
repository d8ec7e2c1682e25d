"""Operators with short intervals, and the modes that tests of all of them run in."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from tests.integration.tasks import INPUTS


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, **options})


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


def run_deferred(**options: Any) -> CrewRunOperator:
    return run(deferrable=True, **options)


def id_of(returned: Any) -> str:
    return returned["kickoff_id"] if isinstance(returned, dict) else returned


every_operator = pytest.mark.parametrize("operator", [kickoff, run, run_deferred])
both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["in the worker", "deferred"])
in_every_mode = pytest.mark.parametrize(
    "mode", [{}, {"deferrable": True}, {"mode": "reschedule"}], ids=["poke", "deferred", "reschedule"]
)
