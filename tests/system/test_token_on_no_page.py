"""
The token is in no log, table or page of a task.

The ``airflow`` fixture in conftest.py searches once more after all tests.
"""

from __future__ import annotations

import pytest

from tests.supported import AIRFLOW
from tests.system.traces import TRIGGERS, has_secret, traces

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
    progress = deferred.xcom_once_pushed("report", "crew_progress")
    assert progress["kickoff_id"] == deferred.xcom("report", "kickoff_id")
    return traces(airflow)


@pytest.mark.parametrize("place", [TRIGGERS, XCOMS])
def test_search_covers_triggers_and_xcoms(left, deferred, place):
    assert deferred.xcom("report", "kickoff_id").encode() in left[place]


def test_token_is_in_no_log_and_no_table(left):
    """XComs, rendered templates, task states and all else that Airflow keeps."""
    assert [place for place, told in left.items() if has_secret(told)] == []


def test_token_is_on_no_page(airflow, deferred):
    task = f"dags/{deferred.dag_id}/dagRuns/{deferred.run_id}/taskInstances/report"
    xcoms = [f"{task}/xcomEntries", f"{task}/xcomEntries/crew_progress"]
    pages = [task, *xcoms, f"{task}/links", "connections", "dags/features_sync/details"]

    assert not any(has_secret(repr(airflow.api.get(page)).encode()) for page in pages)
