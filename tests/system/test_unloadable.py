"""A DAG that cannot be loaded when a deferred task resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow_runs import eventually
from tests.supported import AIRFLOW, has

pytestmark = pytest.mark.timeout(300)


def test_task_unloadable_at_its_resume_starts_no_other_execution(start, airflow, crews):
    run = start("unloadable")
    run.wait_for("report", "deferred")
    execution = run.xcom("report", "kickoff_id")
    broken = Path(airflow._environment["AIRFLOW__CORE__DAGS_FOLDER"], "unloadable.broken")
    broken.touch()
    crews["slow"].finish(execution)
    eventually(lambda: run.task("report")["state"] in {"up_for_reschedule", "failed"}, 90)
    broken.unlink()

    ended = run.wait()
    assert [
        kickoff.kickoff_id
        for kickoff in crews["slow"].kickoffs
        if (kickoff.meta or {}).get("airflow", {}).get("run_id") == run.run_id
    ] == [execution]
    if has("Retries reattach"):
        assert ended == "success"
        assert run.xcom("report")["kickoff_id"] == execution
    else:  # Airflow fails it, up to 3.0 by itself
        assert ended == "failed"
        kinds = [
            event["error_detail"][-1]["exc_type"] for event in run.events("report") if event.get("error_detail")
        ]
        assert AIRFLOW < (3, 1) or kinds[-1] == "CrewTaskFailed"
