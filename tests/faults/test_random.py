"""Many executions, or rows of a batch, and random faults: none is started twice by accident, and none is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, Run, deployed
from tests.faults.chaos import Chaos, story
from tests.faults.harm import whole
from tests.faults.scenes import Code, Scene
from tests.faults.stage import faults_of_batch
from tests.faults.verdict import judge
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
EACH = 4
BETWEEN_RUNS = 6.0
LONGEST = 2400.0
HARMS = 8
OF_ROWS = (story(0), deployed(story(2)), story(6), story(3, error="out of credit"), deployed(story(15)))


@pytest.fixture
def crew(airflow, database, seed) -> Iterator[LocalCrewService]:
    whole(airflow, database)
    print(f"Random harm, with --seed {seed}")  # noqa: T201 - pytest shows it if the test fails
    with LocalCrewService(story(1), token=TOKEN) as crew:
        yield crew


@pytest.mark.core
def test_random_harm_starts_nothing_twice_and_loses_nothing(airflow, database, dags, crew, seed, request):
    number = -(-request.config.getoption("--executions") // EACH)
    airflow.api.set_connection("random_harm", json.loads(crew.connection_json))
    (dags / "random_harm.py").write_text(DAG)
    chaos = Chaos(airflow, database, crew, seed)
    runs = chaos.runs
    began = time.monotonic()

    def enough() -> bool:
        due = (time.monotonic() - began) / BETWEEN_RUNS
        if len(runs) < min(number, due):
            runs.append(Run.start(airflow, "random_harm", keeps_task_state=True))
        return due > number * 2.5

    chaos.rage(enough)
    chaos.see_out(LONGEST)
    faults, states = judge(chaos)

    assert not faults, f"{faults}\nHarm done: {chaos.done}\nStates: {states}"
    # How many end well is up to chance, because some crews fail.
    assert len(crew.kickoffs) >= len(runs) * EACH * 0.9
    assert states["success"] >= len(runs)


@pytest.mark.parametrize("way", ["deferred", "sync"])
def test_random_harm_to_a_batch(airflow, database, dags, crew, seed, way):
    scene = Scene(airflow, database, crew, dags, f"random_batch_{way}", way, batch=30, keeps_task_state=True)
    scene.connect()
    often = {"retries": 200, "retry_delay": Code("datetime.timedelta(seconds=2)")}
    scene.write_dag({"max_active": 7, "poll_interval": 1, "max_outage": 45, **often})
    scene.start()
    chaos = Chaos(airflow, database, crew, seed, OF_ROWS)
    chaos.runs.append(scene.run)
    chaos.rage(lambda: chaos.done.total() >= HARMS or scene.task["state"] == "success")
    chaos.see_out(LONGEST)

    assert not faults_of_batch(scene), chaos.done
    assert scene.task["state"] == "success"
