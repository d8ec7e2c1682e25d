"""Every way in which a task waits for an execution: in the worker, deferred, and poke by poke."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.tasks import INPUTS, Task


def run(_: Any, *, store: Any = None, **options: Any) -> Task:
    given = {"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options}
    return Task(lambda: CrewRunOperator(**given), store=store)


def sensor(service: Any, *, store: Any = None, **options: Any) -> Task:
    given = {"task_id": "crew", "kickoff_id": service.take(INPUTS, None, {}), "poke_interval": 0.02, **options}
    return Task(lambda: CrewExecutionSensor(**given), store=store)


in_every_way = pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(run, {"deferrable": False}, id="run"),
        pytest.param(run, {"deferrable": True}, id="run, deferred"),
        pytest.param(sensor, {}, id="poke"),
        pytest.param(sensor, {"deferrable": True}, id="sensor, deferred"),
        pytest.param(sensor, {"mode": "reschedule"}, id="reschedule"),
    ],
)
