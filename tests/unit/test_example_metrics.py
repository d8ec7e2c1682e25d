"""Mapping, alert rules and dashboard of ``example_metrics``: each names metrics that tasks send."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from fnmatch import fnmatch

import pytest
import yaml  # type: ignore[import-untyped]

from airflow_provider_crew.task.output import _METRICS
from tests.airflow_runs import ROOT

FOLDER = ROOT / "example_metrics"
ENDS = {"completed", "broken", *_METRICS.values()}
METRICS = {
    *(f"kickoff.{outcome}" for outcome in ("started", "not_taken", "uncertain")),
    *(f"execution.{end}" for end in (*ENDS, "duration")),
    *(f"tokens.{kind}" for kind in ("prompt", "completion", "total")),
}
MAPPINGS = yaml.safe_load((FOLDER / "statsd-mapping.yml").read_text())["mappings"]


def mapped(name: str) -> tuple[str, dict[str, str]]:
    """Return name and labels of a metric in Prometheus. The first mapping counts, as in the exporter."""
    found = next(each for each in MAPPINGS if fnmatch(f"airflow.crew.{name}", each["match"]))
    last = name.rpartition(".")[2]
    return found["name"], dict.fromkeys(found.get("labels", {}), last)


def queries() -> list[str]:
    rules = yaml.safe_load((FOLDER / "prometheus-rules.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [each["expr"] for panel in panels for each in panel["targets"]]


def test_rules_and_dashboard_query_metrics_that_tasks_send():
    series = [mapped(name) for name in METRICS]
    names = {f"{name}_bucket" if name.endswith("_seconds") else name for name, _ in series}
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
    for command in (("check", "prometheus-rules.yml"), ("test", "prometheus-rules-test.yml")):
        subprocess.run(["promtool", command[0], "rules", command[1]], cwd=FOLDER, check=True)  # noqa: S607
