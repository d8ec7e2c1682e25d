"""A batch under random faults: no row is started twice by accident, lost, or given the result of another."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import count
from typing import Any

import pytest

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.record import ReceivedRequest
from tests.airflow_runs import TOKEN, Run
from tests.faults.chaos import Chaos, story, table
from tests.faults.harm import whole
from tests.integration.batches import faults_of, has_failed, lines
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.harms_airflow,
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3."),
]

DAG = """
import datetime

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewBatchOperator

with DAG({dag_id!r}, schedule=None):
    CrewBatchOperator(
        task_id="batch",
        crew_conn_id={dag_id!r},
        inputs=[{{"topic": f"row {{number}}"}} for number in range({rows})],
        key="topic",
        result_path={path!r},
        max_active={active},
        max_failed=None,
        deferrable={deferrable},
        poll_interval=1,
        max_outage=45,
        retries=200,
        retry_delay=datetime.timedelta(seconds=2),
    )
"""
_LIVE: dict[str, Any] = {"dialect": "deployed"}
STORIES = (story(0), story(2, **_LIVE), story(6), story(3, error="out of credit"), story(15, **_LIVE))
LONGEST = 2400.0
_REPORTED = re.compile(r"Row (row \d+), uncertain")


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_random_harm_to_a_batch(airflow, database, dags, request, seed, say, way, tmp_path):
    whole(airflow, database)
    rows, harms = request.config.getoption("--rows"), request.config.getoption("--harms")
    dag_id, path = f"random_batch_{way}", tmp_path / "results"
    lost = request.config.getoption("--lost")
    say(f"Random harm to a {way} batch of {rows} rows, with --seed {seed}{f' --lost {lost}' if lost else ''}")
    given = {"dag_id": dag_id, "rows": rows, "path": str(path), "active": min(50, rows // 4)}
    (dags / f"{dag_id}.py").write_text(DAG.format(**given, deferrable=way == "deferred"))
    numbers = count()

    def lose_some(received: ReceivedRequest) -> None:
        if lost and received.operation == "kickoff" and next(numbers) % 10 == 9:
            crew.faults.reset(on="kickoff", after_taken=True)

    calls = {"on_request": lose_some, "call_webhooks": lost == "settled"}
    with LocalCrewService(story(1), token=TOKEN, **calls) as crew:
        airflow.api.set_connection(dag_id, json.loads(crew.connection_json))
        airflow.api.wait_for_dag(dag_id)
        chaos = Chaos(airflow, database, crew, seed, STORIES)
        chaos.leave_out("task marked as failed", "task cleared that had given up an unknown execution")
        run = Run(airflow, dag_id, airflow.api.trigger(dag_id), keeps_task_state=True)
        chaos.runs.append(run)
        chaos.rage(lambda: chaos.done.total() >= harms or run.task("batch")["state"] == "success")
        chaos.see_out([run], LONGEST)
        last, found = run.task("batch"), lines(path)
        reports = _reports(run, last["try_number"])
        faults = faults_of(found, crew.kickoffs, reports, rows)
        counts = Counter(line["status"] for line in found) | {
            "kickoffs": len(crew.kickoffs),
            "rows reported as uncertain": reports.total(),
            "attempts": last["try_number"],
            "executions that failed": sum(map(has_failed, crew.kickoffs)),
        }
    say(f"Harm done:\n{table(chaos.done)}\nSeen:\n{table(counts)}")
    assert not faults, "\n".join(faults)
    assert last["state"] == "success"


def _reports(run: Run, tries: int) -> Counter[str]:
    """Return how often the log reports each row as uncertain."""
    events = (event for number in range(1, tries + 1) for event in run.events("batch", number))
    found = (_REPORTED.match(event["event"]) for event in events)
    return Counter(match[1] for match in found if match)
