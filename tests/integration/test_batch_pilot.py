"""The first rows of a batch, and its limit of tokens: both end it before the rest is paid for."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.exceptions import BatchFailed, CrewTaskFailed
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.local.scenario import ScenarioTask
from tests.integration.batches import QUICK, SLOW, TOKENS
from tests.integration.operators import both_ways
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")

ABOUT = round(40 * TOKENS, -4)


@pytest.fixture(autouse=True)
def crew(live_crew: Any) -> None:
    live_crew.scenario = QUICK


@pytest.fixture
def batch(batch: Any) -> Any:
    return lambda rows=40, **options: batch(rows, max_active=100, **options)


def topics(live_crew: Any) -> list[int]:
    return [int(kickoff.inputs["topic"].split()[1]) for kickoff in live_crew.kickoffs]


@both_ways
def test_pilot_that_passes_runs_alone(live_crew, batch, task_log, deferrable):
    manifest = batch(pilot=10, deferrable=deferrable).run()

    assert manifest["counts"]["success"] == 40
    assert sorted(topics(live_crew)[:10]) == list(range(10))
    polls = [at for at, call in enumerate(live_crew.calls) if call == "kickoff"]
    assert "status" in live_crew.calls[polls[9] : polls[10]], "it started others before the pilot had ended"
    assert manifest["usage"]["total_tokens"] == 40 * TOKENS
    assert manifest["estimated_tokens"] == ABOUT
    estimates = [progress["batch"]["estimate"] for progress in live_crew.xcoms.progress]
    assert estimates[0] is None
    assert estimates[-1] == ABOUT
    (line,) = [line for line in task_log.text.splitlines() if "Pilot: " in line]
    assert f"{10 * TOKENS:,}" in line
    assert f"{ABOUT:,}" in line


def test_output_that_is_checked_again_uses_no_tokens(live_crew, batch):
    fixed: list[bool] = []
    task = batch(12, max_tokens=12 * TOKENS, max_failed=5, pilot=6, check=lambda *_: bool(fixed))
    with pytest.raises(CrewTaskFailed):
        task.run()
    assert len(live_crew.kickoffs) == 6
    fixed.append(True)
    task.clear()
    assert task.run()["counts"]["success"] == 12


@both_ways
@pytest.mark.parametrize(("end", "kickoffs"), [("finish", 10), ("revoke", 14)])
def test_running_rows_that_are_given_up_count_as_average_ones(
    live_crew, batch, each_look_takes, deferrable, end, kickoffs
):
    live_crew.scenario = SLOW
    each_look_takes(5)
    task = batch(max_tokens=10 * TOKENS, row_timeout=60, max_failed=None, deferrable=deferrable)
    with pytest.raises(BatchFailed) as raised:
        task.run()
    assert (len(live_crew.kickoffs), raised.value.cost) == (4, "running")
    for kickoff in live_crew.kickoffs:
        getattr(live_crew, end)(kickoff.kickoff_id)
    live_crew.scenario = QUICK
    task.clear()
    with pytest.raises(CrewTaskFailed):
        task.run()
    assert len(live_crew.kickoffs) == kickoffs


@both_ways
def test_pilot_goes_on_after_a_back_off(live_crew, batch, deferrable):
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=1.0),), inputs=())
    live_crew.faults.answer(503, on="kickoff")
    manifest = batch(pilot=10, max_failed="50%", deferrable=deferrable, timeout=120).run()
    assert (manifest["counts"]["success"], manifest["counts"]["uncertain"]) == (39, 1)
    assert len(live_crew.xcoms.progress) < 30, "it woke up again and again, instead of polling"
