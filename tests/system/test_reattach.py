"""Kickoff records in a real Airflow: what replaces a callback, and a lost scheduler."""

from __future__ import annotations

import time

import pytest

from airflow_provider_crew.versions import NO_RETRIES
from tests.airflow_runs import eventually
from tests.faults.facts import kickoff_record, record_state
from tests.supported import has


def finish(run, crew, number):
    """Wait until the run has started this many executions, complete the last one, and return its kickoff ID."""
    execution = eventually(lambda: len(run.kickoffs(crew)) == number and run.kickoffs(crew)[-1])
    crew.finish(execution.kickoff_id)
    return execution.kickoff_id


def test_delivery_is_noted_when_the_callback_is_replaced(start, crews):
    run, crew = start("reattach_policy"), crews["slow"]
    finish(run, crew, 1)
    assert run.wait() == "success"
    # The task notes it about a second after its success.
    eventually(lambda: record_state(kickoff_record(run, "report")) in {"delivered", "none"})
    run.clear("report", keep_task_state=True)
    second = finish(run, crew, 2)

    run.wait_for("report", "success", tries=2)
    assert run.xcom("report")["kickoff_id"] == second


before_3_3 = pytest.mark.skipif(has("Retries of tasks"), reason="from Airflow 3.3 on, retries reattach")


@before_3_3
def test_task_with_retries_starts_nothing(start, crews):
    run = start("retried")

    assert run.wait() == "failed"
    for told in (run.error("mapped", map_index=0), run.error("report")):
        assert NO_RETRIES in told[1]
    assert (run.task("mapped", 0)["try_number"], run.task("report")["try_number"]) == (1, 1)
    assert run.kickoffs(crews["slow"]) == []


# The next one takes over from a scheduler whose heartbeat is older than scheduler_health_check_threshold.
UNTIL_IT_COUNTS_AS_DEAD = 35


@before_3_3
def test_attempt_beyond_the_retries_starts_no_execution(start, crews, airflow):
    crew = crews["slow"]
    run = start("lost_scheduler")

    (first,) = eventually(lambda: run.kickoffs(crew))
    eventually(lambda: any(first.kickoff_id in each.path for each in crew.requests.on("status")))
    scheduler = airflow.processes["scheduler"]
    scheduler.kill()
    time.sleep(UNTIL_IT_COUNTS_AS_DEAD)
    scheduler.start()

    assert run.wait() == "failed"
    assert run.task("report")["try_number"] == 2
    kind, message = run.error("report", 2)
    assert kind == "CrewTaskFailed"
    assert run.run_id in message, "by which the first execution can be found"
    assert run.kickoffs(crew) == [first]
