"""Many executions and random faults: none is started twice by accident, and none is lost."""

from __future__ import annotations

import json
import time

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, Run
from tests.faults.chaos import Chaos, story, table
from tests.faults.harm import whole
from tests.faults.verdict import judge
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.core,
    pytest.mark.harms_airflow,
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="Before Airflow 3.3, a retry starts another execution."),
]

DAG = """
import datetime

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

tries = {
    "crew_conn_id": "crew_random",
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
EACH = 5
BETWEEN_RUNS = 6.0
LONGEST = 2400.0


def test_random_harm_starts_nothing_twice_and_loses_nothing(airflow, database, dags, request, seed, say):
    whole(airflow, database)
    number = -(-request.config.getoption("--executions") // EACH)
    lost = request.config.getoption("--lost")
    say(f"Random harm to {number * EACH} executions, with --seed {seed}{f' --lost {lost}' if lost else ''}")
    (dags / "random_harm.py").write_text(DAG)
    with LocalCrewService(story(1), token=TOKEN, call_webhooks=lost == "settled") as crew:
        airflow.api.set_connection("crew_random", json.loads(crew.connection_json))
        airflow.api.wait_for_dag("random_harm")
        chaos = Chaos(airflow, database, crew, seed)
        runs = chaos.runs
        began = time.monotonic()

        def enough() -> bool:
            due = (time.monotonic() - began) / BETWEEN_RUNS
            if len(runs) < min(number, due):
                if lost and len(runs) % 2:
                    crew.faults.reset(on="kickoff", after_taken=True)
                run_id = airflow.api.trigger("random_harm")
                runs.append(Run(airflow, "random_harm", run_id, keeps_task_state=True))
            return due > number * 2.5

        chaos.rage(enough)
        chaos.see_out(runs, LONGEST)
        verdict = judge(crew, runs, chaos.cleared, chaos.marked)

    say(f"Harm done:\n{table(chaos.done)}\nSeen:\n{table(verdict.counts)}")
    assert not verdict.faults, "\n".join(verdict.faults)
    # How many end well is up to chance: a task that was marked may have started nothing, and some crews fail.
    assert verdict.counts["executions"] >= (len(runs) * EACH - len(chaos.marked)) * 0.9
    assert verdict.counts["results in XCom"] >= len(runs)
