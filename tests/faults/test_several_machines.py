"""Tasks run on every worker of a distributed Airflow, and the UI shows their logs."""

from __future__ import annotations

import json

import pytest

from airflow_provider_crew.local import LocalCrewService
from dev.distributed import address_of
from dev.rest import ApiError
from tests.airflow_runs import TOKEN, Run, eventually
from tests.faults.rows import LONG

pytestmark = [pytest.mark.core, pytest.mark.executor("celery")]

DAG = """
from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

crew = {"crew_conn_id": "crew_several_machines"}
inputs = {"inputs": {"topic": "{{ run_id }} {{ task.task_id }}"}}

with DAG("several_machines", schedule=None):
    CrewRunOperator(task_id="deferred", deferrable=True, poll_interval=1, **inputs, **crew)
    CrewRunOperator(task_id="sync", poll_interval=1, **inputs, **crew)
    kickoff = CrewKickoffOperator(task_id="kickoff", **inputs, **crew)
    CrewExecutionSensor(task_id="result", kickoff_id=kickoff.output, deferrable=True, poke_interval=1, **crew)
"""
KICKED_OFF_BY = {"deferred": "deferred", "sync": "sync", "result": "kickoff"}
RUNS = 3


def test_each_way_runs_over_both_workers(airflow, dags):
    (dags / "several_machines.py").write_text(DAG)
    with LocalCrewService(LONG, token=TOKEN) as crew:
        airflow.api.set_connection("crew_several_machines", json.loads(crew.connection_json))
        airflow.api.wait_for_dag("several_machines")
        dag_id = "several_machines"
        runs = [Run(airflow, dag_id, airflow.api.trigger(dag_id)) for _ in range(RUNS)]

        eventually(lambda: len(crew.kickoffs) == RUNS * len(KICKED_OFF_BY))
        ids = [kickoff.kickoff_id for kickoff in crew.kickoffs]
        shown_from = {_shown_from(run, "sync", *ids) for run in runs}
        shown_from |= {_shown_from(run, "deferred", "starting") for run in runs}
        for kickoff in crew.kickoffs:
            crew.finish(kickoff.kickoff_id)

        assert [run.wait() for run in runs] == RUNS * ["success"]
        assert len(crew.kickoffs) == RUNS * len(KICKED_OFF_BY)
        for run in runs:
            for task_id, kicked_off_by in KICKED_OFF_BY.items():
                assert run.xcom(task_id)["output"] == f"Briefing: {run.run_id} {kicked_off_by}"
    ran_on = {task["hostname"] for run in runs for task in airflow.api.task_instances(run.dag_id, run.run_id)}
    assert ran_on == {address_of(worker.name) for worker in airflow.all_of("worker")}
    assert shown_from & ran_on
    assert shown_from & {address_of(triggerer.name) for triggerer in airflow.all_of("triggerer")}


def _shown_from(run: Run, task_id: str, *texts: str) -> str:
    """Wait until the page shows one of these texts in the log of a running task; return the log's address."""

    def shown() -> list[str] | None:
        try:
            events = run.airflow.api.log_events(run.dag_id, run.run_id, task_id)
        except ApiError:  # a run that has just begun has no tasks yet
            return None
        told = [event["event"] for event in events]
        return told if any(text in line for line in told for text in texts) else None

    source = next(line for line in eventually(shown) if line.startswith("http://"))
    return source.split("/")[2].split(":")[0]
