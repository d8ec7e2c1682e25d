"""A deployment that wakes up after a quiet period: the look before a kickoff waits for it, nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.service import limits
from airflow_provider_crew.service.errors import ServiceError, Unreachable
from tests.integration.tasks import CONNECTION, INPUTS, Task

pytest_plugins = ["tests.integration.task_fixtures"]

FIVE_MINUTES = limits.WAKING_UP
ASLEEP = 3600


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(task_id="crew", inputs=INPUTS, **options)


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(task_id="crew", inputs=INPUTS, poll_interval=0.02, **options)


every_operator = pytest.mark.parametrize("operator", [kickoff, run])
however_inputs_are_checked = pytest.mark.parametrize("validate_inputs", [True, False, "strict"])


@pytest.fixture
def patient(live_crew, monkeypatch) -> None:  # noqa: ARG001 - whose impatience it takes back
    monkeypatch.setattr("airflow_provider_crew.tasks.check.WAKING_UP", FIVE_MINUTES)


def test_a_crew_is_given_five_minutes():
    assert FIVE_MINUTES == 300.0


@every_operator
@however_inputs_are_checked
@pytest.mark.usefixtures("patient")
def test_a_crew_that_wakes_up_is_waited_for_and_kicked_off_once(
    live_crew, store, operator, validate_inputs, task_log
):
    live_crew.fall_asleep(ASLEEP)
    live_crew.after = lambda _: live_crew.fall_asleep(0) if len(live_crew.calls) == 5 else None

    Task(lambda: operator(validate_inputs=validate_inputs), store=store).run()

    assert live_crew.calls.count("inputs") == 6, "more often than any other call is repeated"
    assert live_crew.calls.count("kickoff") == len(live_crew.kickoffs) == 1
    assert "answers 503" in task_log.warnings
    assert "It may be waking up after a quiet period, and is given 5 minutes for that" in task_log.warnings


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("status", [502, 503, 504])
@however_inputs_are_checked
def test_a_gateway_without_its_crew_is_waited_for(live_crew, status, validate_inputs):
    live_crew.faults.answer(status, on="inputs", times=5)

    assert Task(lambda: kickoff(validate_inputs=validate_inputs)).run()
    assert live_crew.calls == ["inputs"] * 6 + ["kickoff"]


@pytest.mark.usefixtures("patient")
@however_inputs_are_checked
def test_an_answer_that_does_not_come_is_waited_for(live_crew, monkeypatch, validate_inputs):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?request_timeout=1")
    live_crew.faults.hang(on="inputs", times=3)

    assert Task(lambda: kickoff(validate_inputs=validate_inputs)).run()
    assert live_crew.calls == ["inputs"] * 4 + ["kickoff"]


@every_operator
@however_inputs_are_checked
def test_a_crew_that_does_not_wake_up_is_left_to_a_retry(live_crew, store, operator, validate_inputs):
    live_crew.fall_asleep(ASLEEP)
    task = Task(lambda: operator(validate_inputs=validate_inputs), store=store, retries=1)

    with pytest.raises(ServiceError, match="(?s)Nothing was started.*If Airflow retries") as caught:
        task.run()

    assert not isinstance(caught.value, AirflowFailException)
    assert set(live_crew.calls) == {"inputs"}
    assert store.kickoff is None
    live_crew.fall_asleep(0)
    assert task.run()
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("spoil", [lambda faults: faults.answer(500, on="inputs", times=5)], ids=["500"])
def test_what_is_no_sign_of_sleep_is_repeated_as_ever(live_crew, spoil, task_log):
    spoil(live_crew.faults)

    with pytest.raises(ServiceError):
        Task(kickoff).run()

    assert live_crew.calls == ["inputs"] * 3
    assert "waking up" not in task_log.text


@pytest.mark.usefixtures("patient")
def test_nobody_there_is_no_sign_of_sleep(live_crew, task_log):
    live_crew.faults.refuse()

    with pytest.raises(Unreachable, match="Nothing was started"):
        Task(kickoff).run()
    assert "waking up" not in task_log.text


@pytest.mark.parametrize("spoil", [{"status": 500}, {"status": 404}, {"status": 200, "body": "<html>"}], ids=str)
def test_a_failed_look_whose_answer_does_not_matter_keeps_nobody_from_kicking_off(live_crew, spoil):
    live_crew.faults.answer(on="inputs", times=3, **spoil)

    assert Task(lambda: kickoff(validate_inputs=False)).run()


def test_a_kickoff_is_not_sent_again_for_a_crew_that_falls_asleep_before_it(live_crew, store):
    live_crew.after = lambda request: request.operation == "inputs" and live_crew.fall_asleep(ASLEEP)

    with pytest.raises(AirflowFailException, match="not known whether"):
        Task(kickoff, store=store, retries=1).run()

    assert live_crew.calls == ["inputs", "kickoff"]


@pytest.mark.usefixtures("patient")
def test_a_connection_is_tested_at_once(live_crew):
    live_crew.fall_asleep(ASLEEP)

    works, told = CrewHook().test_connection()

    assert not works
    assert "answers 503" in told
    assert live_crew.calls == ["inputs"]
