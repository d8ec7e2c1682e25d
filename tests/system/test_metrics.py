"""The example rules and the dashboard, with the metrics that Airflow sends about real runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, connection, deployed, live, scenario
from tests.exporter import PANELS, RULES, promtool, scraped, series

CREWS = {
    "completed": deployed(scenario()),
    "failed": deployed(scenario(error="The writer ran out of credit")),
    "uncertain": deployed(scenario()),
    "timeout": deployed(scenario(300)),
    "lost": deployed(scenario(300)),
    "broken": deployed(scenario()),
    "unknown": live(scenario(), human_input=True),
}
# Minutes between two scrapes, and how many a day has.
INTERVAL, DAY = 5, 24 * 12
ALERTS = "group by (alertname, crew_conn_id, dag_id, task_id) (max_over_time(ALERTS{alertstate='firing'}[30d]))"


@pytest.fixture(scope="module")
def lines(start, airflow, statsd):
    """What Airflow sends about a run that completes, and about one with each end that a rule alerts on."""
    with ExitStack() as stack:
        crews = {name: stack.enter_context(LocalCrewService(story, token=TOKEN)) for name, story in CREWS.items()}
        crews["uncertain"].faults.reset(on="kickoff", after_taken=True)
        crews["lost"].faults.answer(503, on="status", times=99)
        for name, crew in crews.items():
            airflow.api.set_connection(f"metrics_{name}", connection(crew))
        runs = [start(f"metrics_{name}") for name in ("completed", "alerting")]
        assert [run.wait() for run in runs] == ["success", "failed"]
    return [statsd.of(run.dag_id) for run in runs]


def days(*runs: Sequence[str]) -> list[list[str]]:
    """Return the lines before each scrape if there is a run a day. Sorted: its tasks may end in any order."""
    return [[line] if line else [] for run in runs for line in [*sorted(run), *[""] * (DAY - len(run))]]


def expect(folder: Path, steps: Sequence[Sequence[str]], queries: Mapping[str, Sequence[str]]) -> None:
    """Let Prometheus evaluate the rules over these scrapes, and then each query, whose values are 1."""
    expected = [
        {
            "expr": query,
            "eval_time": f"{INTERVAL * len(steps)}m",
            "exp_samples": [{"labels": labels, "value": 1} for labels in found],
        }
        for query, found in queries.items()
    ]
    interval = f"{INTERVAL}m"
    test = {"interval": interval, "input_series": scraped(steps), "promql_expr_test": expected}
    shutil.copy(RULES, folder)
    path = folder / "test.yml"  # JSON is YAML
    path.write_text(json.dumps({"rule_files": [RULES.name], "evaluation_interval": interval, "tests": [test]}))
    promtool("test", "rules", path.name, cwd=folder)


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus")
def test_rules_alert_on_each_end_but_on_no_run_that_completes(lines, tmp_path):
    completed, alerting = lines
    expect(tmp_path, days(*[completed] * 9), {ALERTS: []})

    labels = {
        "CrewKickoffUncertain": ["uncertain"],
        "CrewMayWaitForPerson": ["unknown"],
        "CrewExecutionLeftRunning": ["timeout", "lost", "broken"],
    }
    alerts = [
        {"alertname": alert, "crew_conn_id": f"metrics_{name}", "dag_id": "metrics_alerting", "task_id": name}
        for alert, names in labels.items()
        for name in names
    ]
    alerts += [
        {"alertname": "CrewFailsOften", "crew_conn_id": "metrics_failed"},
        {"alertname": "CrewTokensRise", "crew_conn_id": "metrics_completed"},
    ]
    panels = [
        each["expr"].replace("$__range", "1d").replace("$crew", ".*").replace("$dag", ".*")
        for panel in PANELS
        for each in panel["targets"]
    ]
    shows = {f"absent(max_over_time(({query})[1d:5m]) > 0)": () for query in panels}
    expect(tmp_path, days(*[completed] * 9, alerting), {ALERTS: [series("", each) for each in alerts], **shows})
