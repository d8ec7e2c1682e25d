"""
The token is in no log, table or page of a task.

The ``airflow`` fixture in conftest.py searches once more after all tests.
"""

from __future__ import annotations

from tests.supported import AIRFLOW
from tests.system.traces import TRIGGERS, has_secret, traces

XCOMS = "xcom_v2" if AIRFLOW >= (3, 4) else "xcom"


def test_token_is_in_no_log_or_table_and_on_no_page(start, crews, airflow):
    run = start("reattach_cleared")
    run.wait_for("report", "deferred")
    kickoff_id = run.xcom("report", "kickoff_id")
    assert run.xcom_once_pushed("report", "crew_progress")["kickoff_id"] == kickoff_id

    left = traces(airflow)
    assert all(kickoff_id.encode() in left[place] for place in (TRIGGERS, XCOMS))
    assert [place for place, told in left.items() if has_secret(told)] == []

    task = run.path("report")
    xcoms = [f"{task}/xcomEntries", f"{task}/xcomEntries/crew_progress"]
    pages = [task, *xcoms, f"{task}/links", "connections", "dags/features_sync/details"]
    assert not any(has_secret(repr(airflow.api.get(page)).encode()) for page in pages)
    crews["slow"].finish(kickoff_id)
    run.wait()
