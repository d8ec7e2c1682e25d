"""How the crew is doing is seen in XCom, through Airflow's public API, while the task is deferred."""

from __future__ import annotations

import pytest

from tests.airflow_runs import eventually
from tests.supported import has

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has("Progress in XCom"), reason="there is nothing that shows it"),
]

MOVED_ON = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 2},
}


def test_it_changes_while_the_task_is_deferred_and_is_there_after_its_end(start, crews):
    run = start("reattach_cleared")
    run.wait_for("report", "deferred")
    kickoff_id = run.xcom("report", "kickoff_id")
    at_first = run.xcom("report", "crew_progress")

    crews["slow"].set_status(kickoff_id, MOVED_ON)
    # For the first XCom a triggerer builds an API of its own, which takes a minute on a busy machine.
    eventually(lambda: run.xcom("report", "crew_progress")["completed"] == 1, 150)
    moved_on = run.xcom("report", "crew_progress")
    state = run.task("report")["state"]
    crews["slow"].set_status(kickoff_id, {"status": "completed", "result": {"output": "Done."}})
    assert run.wait() == "success"
    at_last = run.xcom("report", "crew_progress")

    assert (at_first["kickoff_id"], at_first["state"], at_first["completed"]) == (kickoff_id, "running", 0)
    assert at_first["doing"] == "task 1 of 2, research_task"
    assert (state, moved_on["state"], moved_on["doing"]) == ("deferred", "running", "task 2 of 2, writing_task")
    assert moved_on["started_at"] == at_first["started_at"] < moved_on["since"]
    assert (at_last["state"], at_last["end"]) == ("completed", None)
