"""Many executions, or rows of a batch, and random faults: none is started twice by accident, and none is lost."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, Run, deployed
from tests.faults.chaos import Chaos, story, table
from tests.faults.harm import whole
from tests.faults.verdict import judge
from tests.integration.batches import faults_of, lines
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.harms_airflow,
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="Before Airflow 3.3, a retry starts another execution."),
]

DAG = """
import datetime

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

tries = {
    "crew_conn_id": "random_harm",
    "retries": 6,
    "retry_delay": datetime.timedelta(seconds=4),
    "cancel_on_kill": True,
}
inputs = {"inputs": {"topic": "{{ run_id }} {{ task.task_id }}"}}
patience = {"timeout": 900, "max_outage": 45}
waits = {"poll_interval": 2, **patience}
pokes = {"poke_interval": 2, **patience}

with DAG("random_harm", schedule=None, max_active_runs=100):
    CrewRunOperator(task_id="run_deferred", deferrable=True, **inputs, **waits, **tries)
    CrewRunOperator(task_id="run_sync", human_input=True, **inputs, **waits, **tries)
    CrewRunOperator(
        task_id="run_anyway", deferrable=True, on_uncertain_kickoff="retry", **inputs, **waits, **tries
    )
    kickoffs = [CrewKickoffOperator(task_id=f"kickoff_{number}", **inputs, **tries) for number in (1, 2)]
    CrewExecutionSensor(
        task_id="sensor_deferred", kickoff_id=kickoffs[0].output, deferrable=True, **pokes, **tries
    )
    CrewExecutionSensor(
        task_id="sensor_reschedule",
        kickoff_id=kickoffs[1].output,
        mode="reschedule",
        human_input=True,
        **pokes,
        **tries,
    )
"""
BATCH = """
import datetime

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.batch.operator import CrewBatchOperator

with DAG({dag_id!r}, schedule=None):
    CrewBatchOperator(
        task_id="batch",
        crew_conn_id={dag_id!r},
        inputs=[{{"topic": f"row {{number}}"}} for number in range({rows})],
        key="topic",
        result_path={path!r},
        max_active=7,
        max_failed=None,
        deferrable={deferrable},
        poll_interval=1,
        max_outage=45,
        retries=200,
        retry_delay=datetime.timedelta(seconds=2),
    )
"""
EACH = 5
BETWEEN_RUNS = 6.0
LONGEST = 2400.0
ROWS, HARMS = 30, 8
OF_ROWS = (story(0), deployed(story(2)), story(6), story(3, error="out of credit"), deployed(story(15)))
_REPORTED = re.compile(r"Row (row \d+), uncertain")


@pytest.fixture
def chaos_in(airflow, database, dags, seed, say) -> Iterator[Callable[..., Chaos]]:
    """Return a function that writes a DAG, whose ID is its connection, and returns the chaos around its crew."""
    with ExitStack() as stack:

        def begin(dag_id: str, code: str, *stories: Any) -> Chaos:
            whole(airflow, database)
            say(f"Random harm to {dag_id}, with --seed {seed}")
            (dags / f"{dag_id}.py").write_text(code)
            crew = stack.enter_context(LocalCrewService(story(1), token=TOKEN))
            airflow.api.set_connection(dag_id, json.loads(crew.connection_json))
            return Chaos(airflow, database, crew, seed, *stories)

        yield begin


@pytest.mark.core
def test_random_harm_starts_nothing_twice_and_loses_nothing(chaos_in, airflow, request, say):
    number = -(-request.config.getoption("--executions") // EACH)
    chaos = chaos_in("random_harm", DAG)
    runs = chaos.runs
    began = time.monotonic()

    def enough() -> bool:
        due = (time.monotonic() - began) / BETWEEN_RUNS
        if len(runs) < min(number, due):
            runs.append(Run.start(airflow, "random_harm", keeps_task_state=True))
        return due > number * 2.5

    chaos.rage(enough)
    chaos.see_out(LONGEST)
    verdict = judge(chaos)

    say(f"Harm done:\n{table(chaos.done)}\nSeen:\n{table(verdict.counts)}")
    assert not verdict.faults, "\n".join(verdict.faults)
    # How many end well is up to chance: a task that was marked may have started nothing, and some crews fail.
    assert len(chaos.crew.kickoffs) >= (len(runs) * EACH - len(chaos.marked)) * 0.9
    assert verdict.counts["results in XCom"] >= len(runs)


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_random_harm_to_a_batch(chaos_in, airflow, say, way, tmp_path):
    dag_id, path = f"random_batch_{way}", tmp_path / "results"
    given = {"dag_id": dag_id, "rows": ROWS, "path": str(path)}
    chaos = chaos_in(dag_id, BATCH.format(**given, deferrable=way == "deferred"), OF_ROWS)
    chaos.leave_out("task marked as failed")
    run = Run.start(airflow, dag_id, keeps_task_state=True)
    chaos.runs.append(run)
    chaos.rage(lambda: chaos.done.total() >= HARMS or run.task("batch")["state"] == "success")
    chaos.see_out(LONGEST)

    last = run.task("batch")
    events = (event for number in range(1, last["try_number"] + 1) for event in run.events("batch", number))
    reports = Counter(match[1] for event in events if (match := _REPORTED.match(event["event"])))
    say(f"Harm done:\n{table(chaos.done)}\nReports of uncertain rows: {reports.total()}")
    assert not faults_of(lines(path), chaos.crew.kickoffs, reports, ROWS)
    assert last["state"] == "success"
