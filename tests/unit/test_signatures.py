"""Signatures of operators and hook, and arguments that are rejected when the DAG is parsed."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_crew import (
    CrewBatchOperator,
    CrewExecutionSensor,
    CrewKickoffOperator,
    CrewRunOperator,
)
from airflow_provider_crew.client.options import SENT_AS, KickoffOptions


def own_arguments(operator: Any) -> dict[str, inspect.Parameter]:
    given = inspect.signature(inspect.unwrap(operator.__init__)).parameters.values()
    return {each.name: each for each in given if each.kind is each.KEYWORD_ONLY}


def documented(operator: type) -> list[str]:
    return re.findall(r":param (\w+):", operator.__doc__ or "")


NOT_OF_A_BATCH = {"durable"}


def test_every_argument_is_documented() -> None:
    assert documented(CrewKickoffOperator) == list(own_arguments(CrewKickoffOperator))
    assert documented(CrewExecutionSensor) == list(own_arguments(CrewExecutionSensor))
    assert [*documented(CrewKickoffOperator), *documented(CrewRunOperator)] == list(own_arguments(CrewRunOperator))
    of_a_batch = {*documented(CrewKickoffOperator), *documented(CrewBatchOperator)} - NOT_OF_A_BATCH
    assert own_arguments(CrewBatchOperator).keys() == of_a_batch
    assert documented(KickoffOptions) == list(SENT_AS)


@pytest.mark.parametrize("operator", [CrewKickoffOperator, CrewRunOperator, CrewBatchOperator])
def test_every_option_of_a_kickoff_is_templated(operator: Any) -> None:
    assert SENT_AS.keys() <= {*operator.template_fields}


# How a kickoff is made. Any other argument has to be an option of the kickoff, or it is never sent.
MADE_WITH = {
    *("inputs", "crew_conn_id", "webhook_conn_id", "validate_inputs"),
    *("durable", "cancel_on_kill", "cancel_on_timeout"),
}


def test_every_argument_of_a_kickoff_is_sent_or_known() -> None:
    assert own_arguments(CrewKickoffOperator).keys() == MADE_WITH | SENT_AS.keys()


NO_TIMES: list[Any] = [-1, 1e300, 10**400, float("nan"), timedelta.max, "x", b"x", [], {}]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((CrewRunOperator, name, value) for name in ("poll_interval", "max_outage") for value in [0, *NO_TIMES]),
        *((CrewRunOperator, name, value) for name in ["timeout"] for value in NO_TIMES),
        *((CrewExecutionSensor, name, value) for name in ("timeout", "max_outage") for value in NO_TIMES),
        *((CrewRunOperator, "on_invalid_output", value) for value in ["", "never", 7, None]),
    ],
)
def test_senseless_argument_is_rejected_by_its_name(kind: Any, name: str, value: Any) -> None:
    needed: dict[str, Any] = {"inputs": {}} if kind is CrewRunOperator else {"kickoff_id": "4711"}

    with pytest.raises(ValueError, match=f"^{kind.__name__}: {name} "):
        kind(task_id="crew", **needed, **{name: value})


def test_before_3_3_only_a_task_that_waits_may_have_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_crew.operators.base.HAS_STORE", False)
    CrewExecutionSensor(task_id="crew", kickoff_id="4711", retries=1)
    for kind in (CrewKickoffOperator, CrewRunOperator):
        kind(task_id="crew", inputs={}, retries=0)
        with pytest.raises(AirflowFailException, match="CrewKickoffOperator with retries=0, and"):
            kind(task_id="crew", inputs={}, retries=1)


@pytest.mark.parametrize("seconds", [timedelta(seconds=30), 30, 30.0, "30"])
def test_times_are_seconds_or_a_timedelta(seconds: Any) -> None:
    operator: Any = CrewRunOperator(
        task_id="crew", inputs={}, poll_interval=seconds, timeout=seconds, max_outage=None
    )

    assert (operator.poll_interval, operator.timeout, operator.max_outage) == (30.0, 30.0, None)
