"""Operators and sensors with short intervals, and the modes that tests of all of them run in."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.tasks import INPUTS, Task


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, **options})


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


def run_deferred(**options: Any) -> CrewRunOperator:
    return run(deferrable=True, **options)


def sensor(kickoff_id: Any, **options: Any) -> CrewExecutionSensor:
    return CrewExecutionSensor(**{"task_id": "crew", "kickoff_id": kickoff_id, "poke_interval": 0.02, **options})


def id_of(returned: Any) -> str:
    return returned["kickoff_id"] if isinstance(returned, dict) else returned


every_operator = pytest.mark.parametrize("operator", [kickoff, run, run_deferred])
both_ways = pytest.mark.parametrize("deferrable", [False, True], ids=["in the worker", "deferred"])
in_every_mode = pytest.mark.parametrize(
    "mode", [{}, {"deferrable": True}, {"mode": "reschedule"}], ids=["poke", "deferred", "reschedule"]
)


def run_task(_: Any, *, store: Any = None, **options: Any) -> Task:
    return Task(lambda: run(**options), store=store)


def sensor_task(service: Any, *, store: Any = None, **options: Any) -> Task:
    kickoff_id = service.new_execution(service.scenario)
    return Task(lambda: sensor(kickoff_id, **options), store=store)


in_every_way = pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(run_task, {"deferrable": False}, id="run"),
        pytest.param(run_task, {"deferrable": True}, id="run, deferred"),
        pytest.param(sensor_task, {}, id="poke"),
        pytest.param(sensor_task, {"deferrable": True}, id="sensor, deferred"),
        pytest.param(sensor_task, {"mode": "reschedule"}, id="reschedule"),
    ],
)
