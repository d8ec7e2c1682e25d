"""
The token is on no page of a task, and whoever looks for it looks where a task leaves something.

It is looked for once more when all tests are over and there is most to be looked through: see ``airflow`` in
conftest.py.
"""

from __future__ import annotations

import pytest

from tests.supported import AIRFLOW, has
from tests.system.traces import TRIGGERS, has_secret, traces

pytestmark = pytest.mark.timeout(180)

XCOMS, FIELDS = ("xcom_v2", "rtif_v2") if AIRFLOW >= (3, 4) else ("xcom", "rendered_task_instance_fields")


@pytest.fixture(scope="module")
def deferred(start, crews):
    """A task that is deferred while it is looked at, in a run of everything that leaves something behind."""
    run = start("reattach_cleared")
    run.wait_for("report", "deferred")
    yield run
    crews["slow"].finish(run.xcom("report", "kickoff_id"))
    run.wait()


@pytest.fixture(scope="module")
def left(airflow, deferred):
    if has("Progress in XCom"):
        assert deferred.xcom("report", "crew_progress")["kickoff_id"] == deferred.xcom("report", "kickoff_id")
    return traces(airflow)


@pytest.mark.parametrize("place", [TRIGGERS, XCOMS])
def test_what_a_task_leaves_is_looked_through(left, deferred, place):
    assert deferred.xcom("report", "kickoff_id").encode() in left[place]


def test_its_log_is_looked_through(left, deferred):
    execution = f"Execution {deferred.xcom('report', 'kickoff_id')}".encode()

    assert any(execution in told for place, told in left.items() if place.endswith(".log"))


def test_all_that_airflow_keeps_of_a_task_is_looked_through(left):
    kept = {"trigger", "log", "connection", "task_instance", XCOMS, FIELDS}

    assert kept | ({"task_state_store"} if AIRFLOW >= (3, 3) else set()) <= left.keys()


def test_it_is_nowhere(left):
    """XComs, rendered templates, task states and all else that Airflow keeps."""
    assert [place for place, told in left.items() if has_secret(told)] == []


def test_it_is_on_no_page(airflow, deferred):
    task = f"dags/{deferred.dag_id}/dagRuns/{deferred.run_id}/taskInstances/report"
    shown = [f"{task}/xcomEntries/crew_progress"] * has("Progress in XCom")
    pages = [task, f"{task}/xcomEntries", *shown, f"{task}/links", "connections", "dags/features_sync/details"]

    assert not any(has_secret(repr(airflow.api.get(page)).encode()) for page in pages)
