"""Rows and tokens of a batch: the same in manifest, files, Crew tab and log; its pilot and progress."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.exceptions import BatchFailed
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.local.scenario import ScenarioTask
from tests.integration.batches import FAILING, QUICK, SLOW, TOKENS, lines, rows
from tests.integration.operators import both_ways
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


@pytest.fixture(autouse=True)
def crew(live_crew: Any) -> None:
    live_crew.scenario = QUICK


def tokens_of(live_crew: Any, out: Path, log: str) -> set[int]:
    """Return the tokens in manifest, files, Crew tab and log."""
    written = lines(out)
    found = re.findall(r"([\d,]+) tokens in total", log)
    return {
        lines(out, "manifest")[0]["usage"]["total_tokens"],
        sum(line["usage"]["total_tokens"] for line in written if line["usage"]),
        live_crew.xcoms.progress[-1]["batch"]["tokens"],
        int(found[-1].replace(",", "")),
    }


@both_ways
def test_batch_logs_one_line_at_the_beginning_and_the_end(live_crew, batch, out, task_log, deferrable):
    live_crew.scenario = FAILING
    task = batch(12, max_failed=0, max_active=2, deferrable=deferrable)
    with pytest.raises(BatchFailed):
        task.run()

    log = task_log.text
    first, last = [line for line in log.splitlines() if "Batch: " in line and "have ended" not in line]
    assert "12 rows" in first
    assert str(out) in first
    assert log.index(first) < log.index("Row topic")
    failed, left = re.findall(r"(\d+) (?:failed|not started)", last)
    assert int(failed) + int(left) == 12
    assert f"{int(failed) * TOKENS:,} tokens" in last


@both_ways
def test_tokens_include_failed_executions_of_earlier_attempts(live_crew, batch, out, task_log, deferrable):
    live_crew.scenario = FAILING
    task = batch(3, max_failed=0, deferrable=deferrable)
    for number in (1, 2):
        with pytest.raises(BatchFailed):
            task.run()
        assert tokens_of(live_crew, out, task_log.text) == {len(live_crew.kickoffs) * TOKENS}, number
    live_crew.scenario = QUICK
    manifest = task.run()

    assert manifest["counts"]["success"] == 3
    assert tokens_of(live_crew, out, task_log.text) == {len(live_crew.kickoffs) * TOKENS}
    task.clear()
    task.run()
    assert tokens_of(live_crew, out, task_log.text) == {len(live_crew.kickoffs) * TOKENS}


@both_ways
def test_reason_of_a_row_is_the_same_everywhere(live_crew, batch, out, task_log, deferrable):
    reason = "out of credit (402 from the model's provider)"
    failing = ({"state": "FAILED", "status": reason},)
    live_crew.scenario = SLOW.model_copy(update={"statuses": failing})
    task = batch(1, max_failed=0, deferrable=deferrable)
    with pytest.raises(BatchFailed) as raised:
        task.run()

    for name in ("results", "failed"):
        assert [line["error"]["message"] for line in lines(out, name)] == [reason]
    (group,) = live_crew.xcoms.progress[-1]["batch"]["reasons"]
    assert (group["reason"], raised.value.reasons) == (reason, (f"{reason} (1)",))
    assert f"Row topic 0, error: {reason}" in task_log.warnings
    assert f"{reason} (1). Of 1 row, 1 failed (max_failed: 0)." in live_crew.xcoms.progress[-1]["end"]["event"]


@both_ways
def test_progress_of_a_successful_batch_tells_of_no_more(live_crew, batch, deferrable):
    batch(1, deferrable=deferrable).run()

    shown = live_crew.xcoms.progress[-1]
    assert (shown["state"], shown["end"], shown["if_lost"]["cost"]) == ("completed", None, "ended")
    assert "choices" not in shown
    assert shown["doing"] == "1 of 1 row ended"


@both_ways
def test_metrics_count_rows_as_runs(live_crew, batch, counted, deferrable):
    live_crew.faults.reset(on="kickoff", after_taken=True)
    unusable = {"topic": "without an audience"}
    batch([*rows(3), unusable], max_active=1, max_failed=None, deferrable=deferrable).run()

    names = ("uncertain", "started", "not_taken")
    assert [counted[f"crew.kickoff.{name}"] for name in names] == [1, 2, 1]
    assert [counted[f"crew.{name}"] for name in ("execution.completed", "tokens.total")] == [2, 2 * TOKENS]


def test_tokens_that_no_crew_can_have_used_are_in_no_sum(live_crew, batch):
    live_crew.scenario = QUICK.model_copy(update={"usage": {"total_tokens": -1_000, "more": 1.5e308, "less": 0.5}})
    usage = batch(2).run()["usage"]
    assert (usage, live_crew.xcoms.progress[-1]["batch"]["tokens"]) == ({"executions": 0, "less": 1.0}, 0)


# The first rows, which run alone.


def topics(live_crew: Any) -> list[int]:
    return [int(kickoff.inputs["topic"].split()[1]) for kickoff in live_crew.kickoffs]


@both_ways
def test_pilot_that_passes_runs_alone(live_crew, batch, deferrable):
    manifest = batch(40, max_active=100, pilot=10, deferrable=deferrable).run()

    assert manifest["counts"]["success"] == 40
    assert sorted(topics(live_crew)[:10]) == list(range(10))
    polls = [at for at, call in enumerate(live_crew.calls) if call == "kickoff"]
    assert "status" in live_crew.calls[polls[9] : polls[10]], "it started others before the pilot had ended"
    assert (manifest["usage"]["total_tokens"], manifest["usage"]["executions"]) == (40 * TOKENS, 40)
    estimates = [progress["batch"]["estimate"] for progress in live_crew.xcoms.progress]
    assert (estimates[0], estimates[-1]) == (None, round(40 * TOKENS, -4))


@both_ways
def test_pilot_goes_on_after_a_back_off(live_crew, batch, deferrable):
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=1.0),), inputs=())
    live_crew.faults.answer(503, on="kickoff")
    manifest = batch(40, max_active=100, pilot=10, max_failed="50%", deferrable=deferrable, timeout=120).run()
    assert (manifest["counts"]["success"], manifest["counts"]["uncertain"]) == (39, 1)
    assert len(live_crew.xcoms.progress) < 30, "it woke up again and again, instead of polling"


# Progress, which the Crew tab and alerts show.


def test_sentences_are_pushed_before_the_first_kickoff(live_crew, batch):
    pushed: list[dict[str, Any]] = []
    live_crew.at_kickoff = lambda: pushed.extend(live_crew.xcoms.progress[:1])
    batch().run()

    lost = pushed[0]["if_lost"]
    assert lost["cost"] == Cost.UNKNOWN.value
    assert {"billed", "if_retried", "next_step", "choices"} <= lost.keys()


def test_batch_without_news_is_pushed_again(live_crew, batch, timing):
    timing(progress_pause=0.05, progress_refresh=0.05, progress_refresh_each=0.0)
    live_crew.scenario = SLOW
    live_crew.at_look(40, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    batch(1).run()

    waiting = [each["polled_at"] for each in live_crew.xcoms.progress if each["batch"]["running"]]
    assert len(waiting) > 4
    assert waiting == sorted(set(waiting))
