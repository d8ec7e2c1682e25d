"""Tasks that are interrupted around their kickoff, and what becomes of the execution."""

from __future__ import annotations

import signal

import pytest

from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewRunOperator
from tests.integration.tasks import INPUTS, Task

pytest_plugins = ["tests.integration.task_fixtures"]


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
