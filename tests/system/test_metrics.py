"""Metrics of tasks as a StatsD server receives them."""

from __future__ import annotations

import math
import re

import pytest

from tests.airflow_runs import ROOT

pytestmark = pytest.mark.nightly

TASKS = (
    "kickoff",
    "sensor_deferred",
    "sensor_poke",
    "sensor_reschedule",
    "failed",
    "timeout",
    "lost",
    "unknown",
    "paused",
    "not_taken",
    "uncertain",
)


@pytest.fixture(scope="module")
def told(start, crews, statsd):
    crews["vanishing"].faults.answer(503, on="status", for_seconds=math.inf)
    crews["answerless"].faults.answer(502, on="kickoff", after_taken=True)
    run = start("metrics")
    run.wait()
    return {task: statsd.of("metrics", task) for task in TASKS}


@pytest.mark.parametrize(
    ("task", "counted"),
    [
        ("kickoff", "kickoff.started"),
        ("failed", "kickoff.started"),
        ("not_taken", "kickoff.not_taken"),
        ("uncertain", "kickoff.uncertain"),
        *((end, f"execution.{end}") for end in ("failed", "timeout", "lost", "unknown")),
    ],
)
def test_kickoff_and_end_are_counted_once_by_their_kind(told, task, counted):
    of_kind = counted.partition(".")[0] + "."

    assert {name: n for name, n in told[task].counted.items() if name.startswith(of_kind)} == {counted: 1}


@pytest.mark.parametrize("mode", ["deferred", "poke", "reschedule"])
def test_result_is_counted_with_its_execution_time(told, mode):
    task = told[f"sensor_{mode}"]

    assert task.counted["execution.completed"] == 1
    (milliseconds,) = task.took["execution.duration"]
    assert 28_000 <= milliseconds < 33_000


def test_execution_is_counted_with_its_token_usage(told, crews):
    counted = told["paused"].counted

    assert counted["execution.completed"] == 1
    tokens = {name: count for name, count in counted.items() if name.startswith("tokens.")}
    usage = crews["pausing"].scenario.usage
    assert tokens == {f"tokens.{name}": usage[f"{name}_tokens"] for name in ("prompt", "completion", "total")}


def test_every_metric_is_documented(told):
    listed = re.findall(r"^\| `crew\.([a-z_.]+)` \|", (ROOT / "docs/xcoms.md").read_text(), re.MULTILINE)

    told_here = {name for task in told.values() for name in (*task.counted, *task.took)}
    assert set(listed) == told_here | {"execution.broken", "execution.stopped"}
