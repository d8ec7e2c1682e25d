"""Mapped tasks at once start no more executions than max_kickoffs_per_day allows."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN, connection, scenario

pytestmark = pytest.mark.nightly

TASKS, LIMIT = 6, 3


def test_tasks_at_once_start_as_many_as_are_allowed(airflow, start, tmp_path):
    api = airflow.api
    api.wait_for_dag("crew_budget")
    api.patch("dags/crew_budget", {"is_paused": True})  # as Airflow does with a new DAG, unless told otherwise
    with LocalCrewService(scenario(), token=TOKEN) as crew:
        api.set_connection("crew_budgeted", connection(crew, extra={"max_kickoffs_per_day": LIMIT}))
        run = start("budget", meet_in=str(tmp_path))
        assert run.wait() == "failed"

    tasks = run.tasks("report")
    assert Counter(ti["state"] for ti in tasks) == {"success": LIMIT, "failed": TASKS - LIMIT}
    assert {ti["try_number"] for ti in tasks} == {1}, "no retry"
    assert len(crew.kickoffs) == LIMIT
    counted = api.get("dags/crew_budget/dagRuns")["dag_runs"]
    assert sorted(each["dag_run_id"].rpartition(".")[2] for each in counted) == ["1", "2", "3"]
