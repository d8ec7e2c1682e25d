"""Deployments that wake up after a quiet period: only the check before a kickoff waits for them."""

from __future__ import annotations

import pytest

from airflow_provider_crew.client.timing import Timing
from tests.integration.operators import every_operator, kickoff
from tests.integration.tasks import CONNECTION, Task

pytest_plugins = ["tests.integration.task_fixtures"]

FIVE_MINUTES = Timing().waking_up
ASLEEP = 3600


however_inputs_are_checked = pytest.mark.parametrize("validate_inputs", [True, False])


@pytest.fixture
def patient(live_crew, timing) -> None:  # noqa: ARG001 - whose impatience it takes back
    timing(waking_up=FIVE_MINUTES)


@every_operator
@however_inputs_are_checked
@pytest.mark.usefixtures("patient")
def test_waking_crew_is_waited_for_and_kicked_off_once(live_crew, store, operator, validate_inputs, task_log):
    live_crew.fall_asleep(ASLEEP)
    live_crew.after = lambda _: live_crew.fall_asleep(0) if len(live_crew.calls) == 5 else None

    Task(lambda: operator(validate_inputs=validate_inputs), store=store).run()

    assert live_crew.calls.count("inputs") == 6, "more often than any other call is repeated"
    assert live_crew.calls.count("kickoff") == len(live_crew.kickoffs) == 1
    assert "503" in task_log.warnings


@pytest.mark.usefixtures("patient")
def test_missing_answer_is_waited_for(live_crew, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?request_timeout=0.3")
    live_crew.faults.hang(on="inputs", times=3)

    assert Task(kickoff).run()
    assert live_crew.calls == ["inputs"] * 4 + ["kickoff"]


@pytest.mark.parametrize("spoil", [{"status": 500}, {"status": 404}, {"status": 200, "body": "<html>"}], ids=str)
def test_failed_check_does_not_prevent_kickoff_when_off(live_crew, spoil):
    live_crew.faults.answer(on="inputs", times=3, **spoil)

    assert Task(lambda: kickoff(validate_inputs=False)).run()
