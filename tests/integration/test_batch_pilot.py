"""The first rows of a batch, and its limit of tokens: both end it before the rest is paid for."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.exceptions import BatchFailed, CrewTaskFailed
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.local.scenario import ScenarioTask
from tests.integration.batches import FAILING, QUICK, SLOW, TOKENS, Killed, killed_at
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


@both_ways
def test_pilot_that_fails_costs_no_other_row(live_crew, batch, deferrable):
    live_crew.scenario = FAILING
    task = batch(pilot=10, deferrable=deferrable)
    for attempt in (1, 2):
        with pytest.raises(BatchFailed) as raised:
            task.run()
        assert raised.value.cost == "ended"
        assert sorted(topics(live_crew)) == sorted([*range(10)] * attempt)
    live_crew.scenario = QUICK
    assert task.run()["counts"]["success"] == 40
    assert len(live_crew.kickoffs) == 60


def test_pilot_is_complete_before_a_share_counts(live_crew, batch):
    live_crew.faults.answer(422, on="kickoff", times=2)
    with pytest.raises(BatchFailed):
        batch(pilot=10, max_failed="15%").run()
    assert len(live_crew.kickoffs) == 8


@both_ways
def test_killed_pilot_is_continued(live_crew, batch, deferrable):
    live_crew.scenario = SLOW
    batch(pilot=10, deferrable=True).deferred()
    for kickoff in live_crew.kickoffs:
        live_crew.finish(kickoff.kickoff_id)
    live_crew.scenario = QUICK
    manifest = batch(pilot=10, deferrable=deferrable).run()
    assert manifest["counts"]["success"] == len(live_crew.kickoffs) == 40


def test_pilot_needs_a_limit_of_failures(batch):
    with pytest.raises(ValueError, match="max_failed"):
        batch(pilot=10, max_failed=None).run()


@both_ways
@pytest.mark.parametrize("killed", [False, True])
def test_no_row_starts_once_the_tokens_are_used(live_crew, batch, out, monkeypatch, deferrable, killed):
    task = batch(max_tokens=10 * TOKENS, deferrable=deferrable)
    if killed:
        killed_at(monkeypatch, ResultFiles, "append", after=True)
        with pytest.raises(Killed):
            task.run()
    with pytest.raises(CrewTaskFailed):
        task.run()

    assert len(live_crew.kickoffs) == 10
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["terminal_reason"], manifest["counts"]["not_started"]) == ("max_tokens", 30)
    assert manifest["usage"]["total_tokens"] == 10 * TOKENS
    assert live_crew.xcoms.progress[-1]["end"]["cost"] == "ended"
    task.clear()
    with pytest.raises(CrewTaskFailed):
        task.run()
    assert len(live_crew.kickoffs) == 10
    assert batch(max_tokens=100 * TOKENS).run()["counts"]["success"] == len(live_crew.kickoffs) == 40


@pytest.mark.parametrize("misfits", [{}, {"output_type": int, "max_failed": None}])
def test_crew_without_usage_cannot_be_limited(live_crew, batch, misfits):
    live_crew.scenario = QUICK.model_copy(update={"usage": {}})
    task = batch(max_tokens=1_000_000, rerun="all", **misfits)
    for _ in range(3):
        with pytest.raises(CrewTaskFailed):
            task.run()
        assert len(live_crew.kickoffs) == 4
        task.clear()


@both_ways
@pytest.mark.parametrize("silent", [QUICK, FAILING], ids=["completes", "fails"])
def test_rows_without_usage_count_as_average_ones(live_crew, batch, silent, deferrable):
    number = count(1)

    def say_no_more() -> None:
        if next(number) == 4:
            live_crew.scenario = silent.model_copy(update={"usage": {}})

    live_crew.at_kickoff = say_no_more
    task = batch(max_tokens=10 * TOKENS, max_failed=None, rerun="failed", deferrable=deferrable)
    for _ in range(3):
        with pytest.raises(CrewTaskFailed):
            task.run()
        assert len(live_crew.kickoffs) == 10
        task.clear()


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
def test_pilot_goes_on_after_a_back_off(live_crew, batch, deferrable):
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=1.0),), inputs=())
    live_crew.faults.answer(503, on="kickoff")
    manifest = batch(pilot=10, max_failed="50%", deferrable=deferrable, timeout=120).run()
    assert (manifest["counts"]["success"], manifest["counts"]["uncertain"]) == (39, 1)
    assert len(live_crew.xcoms.progress) < 30, "it woke up again and again, instead of polling"


@pytest.mark.parametrize("rejected", [0, 12, 28])
def test_rejected_rows_use_no_tokens(live_crew, batch, rejected):
    if rejected:
        live_crew.faults.answer(422, on="kickoff", times=rejected)
    with pytest.raises(CrewTaskFailed):
        batch(100, max_tokens=10 * TOKENS, max_failed=None).run()
    assert len(live_crew.kickoffs) == 10


def test_retry_is_not_promised_once_the_tokens_are_used(live_crew, batch):
    live_crew.faults.answer(422, on="kickoff", times=4)
    with pytest.raises(CrewTaskFailed):
        batch(14, max_tokens=10 * TOKENS, max_failed="25%", retries=2).run()
    assert len(live_crew.kickoffs) == 10
