"""Counts of a batch: its rows and tokens are the same in manifest, files, Crew tab and log."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Stats

from airflow_provider_crew.exceptions import BatchFailed, CrewTaskFailed, WaitedTooLong
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
    written = [line for name in ("results", "removed") for line in lines(out, f"{name}.jsonl")]
    found = re.findall(r"([\d,]+) tokens in total", log)
    return {
        json.loads((out / "manifest.json").read_text())["usage"]["total_tokens"],
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


def test_tokens_of_a_failure_between_attempts_count(live_crew, batch, out, task_log):
    live_crew.scenario = SLOW
    task = batch(1, deferrable=True)
    task.deferred()
    failing = {"state": "FAILED", "status": "out of credit", "usage_metrics": {"total_tokens": 7}}
    live_crew.set_status(live_crew.kickoffs[0].kickoff_id, failing)
    live_crew.scenario = QUICK
    task.run()
    assert tokens_of(live_crew, out, task_log.text) == {7 + TOKENS}


def test_tokens_of_an_execution_that_outlasts_the_batch_count(live_crew, batch, out, each_look_takes, task_log):
    live_crew.scenario = SLOW
    each_look_takes(5)
    task = batch(4, timeout=300, max_active=2, max_tokens=2 * TOKENS, max_failed=None)
    with pytest.raises(WaitedTooLong):
        task.run()
    for kickoff in live_crew.kickoffs:
        live_crew.finish(kickoff.kickoff_id)
    live_crew.scenario = QUICK
    for _ in range(2):
        with pytest.raises(CrewTaskFailed):
            task.run()
        assert tokens_of(live_crew, out, task_log.text) == {2 * TOKENS}
    assert len(live_crew.kickoffs) == 2


@both_ways
def test_reason_of_a_row_is_the_same_everywhere(live_crew, batch, out, task_log, deferrable):
    reason = "out of credit (402 from the model's provider)"
    failing = ({"state": "FAILED", "status": reason},)
    live_crew.scenario = SLOW.model_copy(update={"statuses": failing})
    task = batch(1, max_failed=0, deferrable=deferrable)
    with pytest.raises(BatchFailed) as raised:
        task.run()

    for name in ("results.jsonl", "failed.jsonl"):
        assert [line["error"]["message"] for line in lines(out, name)] == [reason]
    (group,) = live_crew.xcoms.progress[-1]["batch"]["reasons"]
    assert (group["reason"], raised.value.reasons) == (reason, (f"{reason} (1)",))
    assert f"Row topic 0, error: {reason}" in task_log.warnings
    assert f"Of 1 rows, 1 failed (max_failed: 0): {reason} (1)." in live_crew.xcoms.progress[-1]["end"]["event"]


@both_ways
def test_row_whose_execution_runs_on_is_counted_once(live_crew, batch, each_look_takes, task_log, deferrable):
    live_crew.scenario = SLOW
    each_look_takes(5)
    with pytest.raises(BatchFailed) as raised:
        batch(3, row_timeout=300, max_failed=0, deferrable=deferrable).run()

    counts = live_crew.xcoms.progress[-1]["batch"]
    assert counts["ended"] + counts["running"] + counts["waiting"] == counts["total"] == 3
    assert counts["failed"] == 0 < counts["running"]
    assert "0 failed" not in raised.value.event
    assert f"{counts['running']} running" in raised.value.event
    assert re.search(rf"0 succeeded, {counts['running']} running", task_log.text)


@both_ways
def test_metrics_count_rows_as_runs(live_crew, batch, mocker, deferrable):
    counts: Counter[str] = Counter()
    mocker.patch.object(Stats, "incr", side_effect=lambda name, by=1, **_: counts.update({name: by}))
    live_crew.faults.reset(on="kickoff", after_taken=True)
    unusable = {"topic": "without an audience"}
    batch([*rows(3), unusable], max_active=1, max_failed=None, deferrable=deferrable).run()

    names = ("uncertain", "started", "not_taken")
    assert [counts[f"crew.kickoff.{name}"] for name in names] == [1, 2, 1]
    assert [counts[f"crew.{name}"] for name in ("execution.completed", "tokens.total")] == [2, 2 * TOKENS]
