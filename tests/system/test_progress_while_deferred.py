"""The crew_progress XCom of a deferred task, read through Airflow's REST API."""

from __future__ import annotations

import pytest

from tests.airflow_runs import eventually

MOVED_ON = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 2},
}


@pytest.mark.nightly
def test_progress_changes_during_deferral_and_remains_after_it(start, crews):
    run = start("reattach_cleared")
    run.wait_for("report", "deferred")
    kickoff_id = run.xcom("report", "kickoff_id")
    at_first = run.xcom_once_pushed("report", "crew_progress")

    crews["slow"].set_status(kickoff_id, MOVED_ON)
    eventually(lambda: run.xcom("report", "crew_progress")["completed"] == 1)
    moved_on = run.xcom("report", "crew_progress")
    state = run.task("report")["state"]
    crews["slow"].set_status(kickoff_id, {"status": "completed", "result": {"output": "Done."}})
    assert run.wait() == "success"
    at_last = run.xcom("report", "crew_progress")
    result = run.xcom("report")

    assert (at_first["kickoff_id"], at_first["state"], at_first["completed"]) == (kickoff_id, "running", 0)
    assert at_first["current_task"] == "research_task"
    assert (state, moved_on["state"], moved_on["current_task"]) == ("deferred", "running", "writing_task")
    assert moved_on["started_at"] == at_first["started_at"] < moved_on["since"]
    # The return value shows the end.
    assert (at_last, result["kickoff_id"]) == (moved_on, kickoff_id)
