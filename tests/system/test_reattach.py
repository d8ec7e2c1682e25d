"""Kickoff records in a real Airflow: what replaces a callback, and what clearing keeps."""

from __future__ import annotations

import pytest

from tests.airflow_runs import eventually
from tests.faults.facts import kickoff_record, record_state
from tests.supported import AIRFLOW, has

remembers = pytest.mark.skipif(
    not has("Retries reattach"), reason="before Airflow 3.3 a try knows nothing of another"
)


class Started:
    """The executions that one run has started."""

    def __init__(self, crew, run):
        self.crew, self.run = crew, run

    def all(self):
        return [
            kickoff
            for kickoff in self.crew.kickoffs
            if kickoff.meta and kickoff.meta["airflow"]["run_id"] == self.run.run_id
        ]

    def wait_for(self, number):
        return eventually(lambda: len(self.all()) >= number and self.all()[number - 1].kickoff_id)


@pytest.fixture
def begin(start, crews):
    def begin_run(dag_id, crew="slow"):
        run = start(dag_id, crew=crew)
        return run, Started(crews[crew], run), crews[crew]

    return begin_run


@pytest.mark.parametrize("dag_id", ["reattach_policy", "reattach_assigned"])
def test_delivery_is_noted_when_the_callback_is_replaced(begin, dag_id):
    run, started, crew = begin(dag_id)
    first = started.wait_for(1)
    crew.finish(first)
    assert run.wait() == "success"
    # The task notes it about a second after its success.
    eventually(lambda: record_state(kickoff_record(run, "report")) in {"delivered", "none"})
    run.clear("report", keep_task_state=True)
    second = started.wait_for(2)
    crew.finish(second)

    eventually(lambda: run.task("report")["state"] == "success" and run.task("report")["try_number"] == 2)
    assert run.xcom("report")["kickoff_id"] == second


@remembers
@pytest.mark.nightly
@pytest.mark.parametrize("keeps", [True, False])
def test_clearing_keeps_the_record_up_to_3_3_or_if_asked(begin, keeps):
    run, started, crew = begin("reattach_cleared")
    first = started.wait_for(1)
    run.wait_for("report", "deferred")
    run.clear("report", keep_task_state=keeps)
    run.wait_for("report", "deferred", tries=2)

    expected = 1 if keeps or AIRFLOW < (3, 4) else 2
    assert (run.xcom("report", "kickoff_id") == first) == (expected == 1)
    for execution in started.all():
        crew.finish(execution.kickoff_id)
    assert run.wait() == "success"
    assert len(started.all()) == expected


@remembers
@pytest.mark.nightly
def test_clearing_a_run_keeps_the_record_before_3_5(begin):
    run, started, crew = begin("reattach_cleared")
    first = started.wait_for(1)
    run.wait_for("report", "deferred")
    run.airflow.api.post(f"dags/{run.dag_id}/dagRuns/{run.run_id}/clear", {"dry_run": False})
    run.wait_for("report", "deferred", tries=2)
    crew.finish(first)

    assert run.wait() == "success"
    assert run.xcom("report")["kickoff_id"] == first
    assert len(started.all()) == 1
