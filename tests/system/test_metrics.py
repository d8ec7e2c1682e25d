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
    ("task", "end"),
    [("kickoff", "started"), ("failed", "started"), ("not_taken", "not_taken"), ("uncertain", "uncertain")],
)
def test_kickoff_is_counted_by_its_outcome(told, task, end):
    counted = {name: count for name, count in told[task].counted.items() if name.startswith("kickoff.")}

    assert counted == {f"kickoff.{end}": 1}


@pytest.mark.parametrize("mode", ["deferred", "poke", "reschedule"])
def test_result_is_counted_with_its_execution_time(told, mode):
    task = told[f"sensor_{mode}"]

    assert task.counted["execution.completed"] == 1
    (milliseconds,) = task.took["execution.duration"]
    assert 28_000 <= milliseconds < 33_000


@pytest.mark.parametrize("end", ["failed", "timeout", "lost", "unknown"])
def test_other_ends_are_counted_by_their_kind(told, end):
    counted = {name: count for name, count in told[end].counted.items() if name.startswith("execution.")}

    assert counted == {f"execution.{end}": 1}


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
