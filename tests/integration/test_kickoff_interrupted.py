"""Tasks that are interrupted around their kickoff, and what becomes of the execution."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.durable.outcome import CrewTaskFailed
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from tests.integration.tasks import INPUTS, Task

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.fixture
def alarm() -> Iterator[Any]:
    """Raise what Airflow raises in a task whose execution_timeout is over, so many seconds from now."""

    def ring(*_: object) -> None:
        raise AirflowTaskTimeout("Timeout")

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("operator", [CrewKickoffOperator, CrewRunOperator])
def test_timeout_during_the_kickoff_waits_for_the_id(live_crew, store, alarm, operator):
    live_crew.faults.hang(seconds=0.3, on="kickoff", after_taken=True)
    live_crew.at_kickoff = lambda: alarm(0.05)
    started = Task(lambda: operator(task_id="crew", inputs=INPUTS), store=store, retries=1)

    with pytest.raises((AirflowTaskTimeout, CrewTaskFailed)):
        started.run()

    assert store.kickoff["kickoff_id"] == live_crew.kickoffs[0].kickoff_id


@pytest.mark.parametrize("operator", [CrewKickoffOperator, CrewRunOperator])
def test_timeout_during_the_kickoff_is_not_retried_without_a_store(live_crew, alarm, operator):
    live_crew.faults.hang(seconds=0.3, on="kickoff", after_taken=True)
    live_crew.at_kickoff = lambda: alarm(0.05)

    with pytest.raises(CrewTaskFailed) as caught:
        Task(lambda: operator(task_id="crew", inputs=INPUTS), retries=1).run()

    (taken,) = live_crew.kickoffs
    assert caught.value.cost is Cost.RUNNING
    assert taken.kickoff_id in str(caught.value)


class Killed(BaseException):
    """What Airflow raises in a task that is ended from outside."""


@pytest.mark.parametrize("during_kickoff", [True, False])
def test_killed_task_names_its_execution(live_crew, task_log, during_kickoff):
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=3600),))
    operator = CrewRunOperator(task_id="crew", inputs=INPUTS, poll_interval=0.02)

    def kill(*_: object) -> None:
        operator.on_kill()
        raise Killed

    def send_signal(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, kill), signal.signal(signal.SIGALRM, send_signal)
    if during_kickoff:
        live_crew.faults.hang(seconds=0.3, on="kickoff", after_taken=True)
    try:
        live_crew.at_kickoff = lambda: signal.setitimer(signal.ITIMER_REAL, 0.1 if during_kickoff else 0.5)
        with pytest.raises((Killed, CrewTaskFailed)):
            Task(lambda: operator).run()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGALRM, before[1])

    (taken,) = live_crew.kickoffs
    assert taken.kickoff_id in task_log.warnings


def test_task_killed_before_its_kickoff_warns_of_nothing(task_log):
    CrewRunOperator(task_id="crew", inputs=INPUTS).on_kill()

    assert not task_log.warnings
