"""Mapping, alert rules and dashboard of ``example_metrics``: each names metrics that tasks send."""

from __future__ import annotations

import re
import shutil

import pytest
import yaml  # type: ignore[import-untyped]

from airflow_provider_crew.task.output import _METRICS
from tests.exporter import PANELS, RULES, mapped, promtool

ENDS = {"completed", "broken", *_METRICS.values()}
METRICS = {
    *(f"kickoff.{outcome}" for outcome in ("started", "not_taken", "uncertain")),
    *(f"execution.{end}" for end in (*ENDS, "duration")),
    *(f"tokens.{kind}" for kind in ("prompt", "completion", "total")),
}


def queries() -> list[str]:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return [rule["expr"] for rule in rules] + [each["expr"] for panel in PANELS for each in panel["targets"]]


def test_rules_and_dashboard_query_metrics_that_tasks_send():
    series = [mapped(f"airflow.crew.{name}") for name in METRICS]
    names = {f"{each['name']}_bucket" if "observer_type" in each else each["name"] for each, _ in series}
    values = {
        label: {labels[label] for _, labels in series if label in labels} for label in ("outcome", "end", "kind")
    }

    asked = [name for query in queries() for name in re.findall(r"\bairflow_crew_\w+", query)]
    assert {*asked} == names
    for label, chosen in (
        pair for query in queries() for pair in re.findall(r'(outcome|end|kind)=~?"(.*?)"', query)
    ):
        assert {*chosen.split("|")} <= values[label]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus")
def test_rules_alert_as_their_tests_expect():
    promtool("check", "rules", "prometheus-rules.yml")
    promtool("test", "rules", "prometheus-rules-test.yml")
