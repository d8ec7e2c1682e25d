"""Twenty mapped tasks at once start no more executions than max_kickoffs_per_day allows."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from airflow_provider_crew.local import LocalCrewService
from dev.postgres import PostgresServer
from dev.stack import AirflowStack
from tests.airflow_runs import ROOT, TOKEN, Run, connection, scenario

pytestmark = pytest.mark.nightly

TASKS, LIMIT = 20, 5


def test_twenty_tasks_at_once_start_as_many_as_are_allowed(tmp_path):
    (tmp_path / "dags").mkdir()
    for path in ("tests/system/dags/budget.py", "example_dags/crew_budget.py"):
        shutil.copy(ROOT / path, tmp_path / "dags")
    with LocalCrewService(scenario(), token=TOKEN) as crew, PostgresServer() as database:
        settings = {
            "AIRFLOW_CONN_CREW_BUDGETED": connection(crew, extra={"max_kickoffs_per_day": LIMIT}),
            "AIRFLOW__CORE__PARALLELISM": str(TASKS),
            # So many processes start at once that some get no answer within the usual five seconds.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_SIZE": str(2 * TASKS),
        }
        with AirflowStack(tmp_path / "airflow", tmp_path / "dags", database.settings | settings) as airflow:
            run_budget(airflow, crew, tmp_path / "meeting")


def run_budget(airflow, crew, meeting):
    api = airflow.api
    api.wait_for_dag("crew_budget")
    api.patch("dags/crew_budget", {"is_paused": True})  # as Airflow does with a new DAG, unless told otherwise
    meeting.mkdir()
    run = Run.start(airflow, "budget", meet_in=str(meeting))
    assert run.wait() == "failed"

    tasks = run.tasks("report")
    assert Counter(ti["state"] for ti in tasks) == {"success": LIMIT, "failed": TASKS - LIMIT}
    assert {ti["try_number"] for ti in tasks} == {1}, "no retry"
    assert len(crew.kickoffs) == LIMIT
    counted = api.get("dags/crew_budget/dagRuns")["dag_runs"]
    assert sorted(each["dag_run_id"].rpartition(".")[2] for each in counted) == ["1", "2", "3", "4", "5"]
    assert {each["state"] for each in counted} == {"queued"}
    done = {ti["map_index"] for ti in tasks if ti["state"] == "success"}
    assert {each["conf"]["map_index"] for each in counted} == done
    refused = next(ti["map_index"] for ti in tasks if ti["state"] == "failed")
    kind, message = run.error("report", map_index=refused)
    assert kind == "CrewTaskFailed"
    assert "max_kickoffs_per_day" in message
