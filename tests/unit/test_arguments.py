"""Arguments of operators and sensor that make no sense are rejected when the DAG is parsed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

NO_TIMES: list[Any] = [-1, 1e300, 10**400, float("nan"), timedelta.max, "x", b"x", [], {}]
NO_TYPES: list[Any] = ["", "Report", "{{ x }}", "a..b", 7, True, b"x", [], {"title": str}, ["title"]]
NO_CHOICES: list[Any] = ["", "never", 7, None]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((CrewRunOperator, name, value) for name in ("poll_interval", "max_outage") for value in [0, *NO_TIMES]),
        *((CrewRunOperator, name, value) for name in ["timeout"] for value in NO_TIMES),
        *((CrewExecutionSensor, name, value) for name in ("timeout", "max_outage") for value in NO_TIMES),
        *((kind, "output_type", value) for kind in (CrewRunOperator, CrewExecutionSensor) for value in NO_TYPES),
        *(
            (CrewRunOperator, name, value)
            for name in ("on_uncertain_kickoff", "on_invalid_output", "validate_inputs")
            for value in NO_CHOICES
        ),
    ],
)
def test_senseless_argument_is_rejected_by_its_name(kind: Any, name: str, value: Any) -> None:
    needed: dict[str, Any] = {"inputs": {}} if kind is CrewRunOperator else {"kickoff_id": "4711"}

    with pytest.raises(ValueError, match=f"^{kind.__name__}: {name} "):
        kind(task_id="crew", **needed, **{name: value})


def test_output_of_another_task_is_no_output_type() -> None:
    with pytest.raises(ValueError, match="^CrewRunOperator: output_type "):
        CrewRunOperator(task_id="crew", inputs={}, output_type=CrewRunOperator(task_id="before", inputs={}).output)


@pytest.mark.parametrize("seconds", [timedelta(seconds=30), 30, 30.0, "30"])
def test_times_are_seconds_or_a_timedelta(seconds: Any) -> None:
    operator: Any = CrewRunOperator(
        task_id="crew", inputs={}, poll_interval=seconds, timeout=seconds, max_outage=None
    )

    assert (operator.poll_interval, operator.timeout, operator.max_outage) == (30.0, 30.0, None)
