"""Reattaching to the execution of an earlier attempt: on a retry, and after clearing the task."""

from __future__ import annotations

import os
import signal

import pytest

from tests.airflow_runs import DASHBOARD, eventually, task_processes
from tests.supported import AIRFLOW, has

pytestmark = pytest.mark.timeout(300)
remembers = pytest.mark.skipif(
    not has("Retries reattach"),
    reason="before Airflow 3.3 a try knows nothing of another",
)

# What a core row of the faults plays as well, before every change.
nightly = pytest.mark.nightly

READS_UNKNOWN = {"state": "NOT FOUND", "status": "Task not found or Invalid kickoff id"}


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
        return eventually(lambda: len(self.all()) >= number and self.all()[number - 1].kickoff_id, 90)


@pytest.fixture
def begin(start, crews):
    def begin_run(dag_id, crew="slow"):
        run = start(dag_id, crew=crew)
        return run, Started(crews[crew], run), crews[crew]

    return begin_run


@remembers
def test_retry_reattaches_to_a_running_execution(begin):
    run, started, crew = begin("reattach")
    execution = started.wait_for(1)
    run.wait_for("report", "deferred", tries=2)
    assert run.link("report") == DASHBOARD.format(kickoff_id=execution)
    crew.finish(execution)

    assert run.wait() == "success"
    assert run.xcom("report")["kickoff_id"] == execution
    assert len(started.all()) == 1


@nightly
@remembers
def test_retry_returns_the_result_of_a_completed_execution(begin):
    run, started, crew = begin("reattach")
    execution = started.wait_for(1)
    crew.set_status(execution, {"status": "running"})
    eventually(lambda: run.task("report")["state"] == "up_for_retry" or run.task("report")["try_number"] == 2)
    crew.set_status(execution, {"status": "completed", "result": {"output": "Done.", "tasks": []}})

    assert run.wait() == "success"
    assert run.xcom("report")["output"] == "Done."
    assert len(started.all()) == 1


@nightly
@remembers
def test_retry_waits_for_an_unknown_execution(begin):
    run, started, crew = begin("reattach")
    execution = started.wait_for(1)
    # Not before: a try that ends while the execution reads unknown is not retried.
    eventually(lambda: run.task("report")["state"] == "up_for_retry" or run.task("report")["try_number"] == 2)
    crew.set_status(execution, READS_UNKNOWN)
    run.wait_for("report", "deferred", tries=2)
    crew.set_status(execution)
    crew.finish(execution)

    assert run.wait() == "success"
    assert run.xcom("report")["kickoff_id"] == execution
    assert len(started.all()) == 1


@nightly
@remembers
def test_cleared_task_reattaches_to_a_running_execution(begin):
    run, started, crew = begin("reattach_cleared")
    execution = started.wait_for(1)
    run.wait_for("report", "deferred")
    run.clear("report", keep_task_state=True)
    run.wait_for("report", "deferred", tries=2)
    crew.finish(execution)

    assert run.wait() == "success"
    assert run.xcom("report")["kickoff_id"] == execution
    assert len(started.all()) == 1


@nightly
def test_cleared_task_after_a_result_starts_another_execution(begin):
    run, started, crew = begin("reattach_cleared")
    first = started.wait_for(1)
    crew.finish(first)
    assert run.wait() == "success"
    run.clear("report")
    second = started.wait_for(2)
    crew.finish(second)

    eventually(lambda: run.task("report")["state"] == "success" and run.task("report")["try_number"] == 2, 90)
    assert run.xcom("report")["kickoff_id"] == second
    assert len(started.all()) == 2


@pytest.mark.parametrize("dag_id", ["reattach_policy", "reattach_assigned"])
def test_delivery_is_noted_when_the_callback_is_replaced(begin, dag_id):
    run, started, crew = begin(dag_id)
    first = started.wait_for(1)
    crew.finish(first)
    assert run.wait() == "success"
    run.clear("report", keep_task_state=True)
    second = started.wait_for(2)
    crew.finish(second)

    eventually(lambda: run.task("report")["state"] == "success" and run.task("report")["try_number"] == 2, 90)
    assert run.xcom("report")["kickoff_id"] == second


@remembers
def test_reordered_rows_keep_their_results_after_a_clear(begin):
    run, started, crew = begin("reattach_mapped")
    started.wait_for(3)
    eventually(lambda: {ti["state"] for ti in run.tasks("report")} == {"deferred"}, 90)
    before = {kickoff.kickoff_id: kickoff.inputs["topic"] for kickoff in started.all()}
    run.clear("rows", keep_task_state=True)
    run.clear("report", keep_task_state=True)

    def ended() -> bool:
        ends = {ti["map_index"]: (ti["state"], ti["try_number"]) for ti in run.tasks("report")}
        if ends.get(1) == ("deferred", 2):  # the row in the middle stays where it is
            crew.finish(next(kickoff_id for kickoff_id, topic in before.items() if topic == "harbours"))
        return ends == {0: ("failed", 2), 1: ("success", 2), 2: ("failed", 2)}

    eventually(ended, 150)
    assert len(started.all()) == 3
    assert run.xcom("report", map_index=1)["output"] == "Briefing: harbours"

    for kickoff_id in before:
        crew.finish(kickoff_id)
    run.wait()
    run.clear("report", keep_task_state=True)
    started.wait_for(6)
    for kickoff in started.all():
        crew.finish(kickoff.kickoff_id)
    eventually(lambda: {ti["state"] for ti in run.tasks("report")} == {"success"}, 150)
    outputs = [run.xcom("report", map_index=index)["output"] for index in range(3)]
    assert outputs == ["Briefing: trams", "Briefing: harbours", "Briefing: ferries"]


@nightly
def test_cleared_task_after_a_failure_starts_another_execution(begin):
    run, started, crew = begin("reattach_cleared")
    crew.set_status(started.wait_for(1), {"status": "error", "error": "Out of credit", "execution_time": 1})
    assert run.wait() == "failed"
    run.clear("report")
    second = started.wait_for(2)
    crew.finish(second)

    eventually(lambda: run.task("report")["state"] == "success", 90)
    assert run.xcom("report")["kickoff_id"] == second


@nightly
@remembers
def test_unknown_execution_is_given_up_by_deleting_its_record(begin):
    run, started, crew = begin("reattach_unknown")
    execution = started.wait_for(1)
    crew.set_status(execution, READS_UNKNOWN)
    assert run.wait() == "failed"
    assert run.error("report")[0] == "CrewTaskFailed"

    run.clear("report", keep_task_state=True)
    run.wait_for("report", "failed", tries=2)
    # A Clear between a task's end and its run's is lost: the scheduler then ends a run whose task has yet to run.
    assert run.wait() == "failed"
    assert len(started.all()) == 1

    run.forget_kickoff("report")
    run.clear("report", keep_task_state=True)
    crew.finish(started.wait_for(2))
    eventually(lambda: run.task("report")["state"] == "success", 90)
    assert len(started.all()) == 2


@nightly
@pytest.mark.skipif(AIRFLOW < (3, 4), reason="before Airflow 3.4 a Clear makes it forget nothing")
def test_cleared_task_without_its_state_starts_another_and_warns(begin):
    run, started, crew = begin("reattach_cleared")
    started.wait_for(1)
    run.wait_for("report", "deferred")
    run.clear("report")
    second = started.wait_for(2)
    crew.finish(second)

    assert run.wait() == "success"
    assert run.xcom("report")["kickoff_id"] == second
    assert [event for event in run.events("report", 2) if event.get("level") == "warning"]


@nightly
@remembers
def test_cleared_kickoff_operator_returns_a_running_execution(begin):
    run, started, _ = begin("reattach_kickoff")
    assert run.wait() == "success"
    run.clear("kickoff", keep_task_state=True)
    run.wait_for("kickoff", "success", tries=2)

    assert run.xcom("kickoff") == started.all()[0].kickoff_id
    assert len(started.all()) == 1


def test_uncertain_kickoff_is_not_retried_but_may_be_cleared(begin, crews):
    crews["uncertain"].faults.answer(502, on="kickoff", after_taken=True)
    run, started, crew = begin("reattach_uncertain", "uncertain")
    assert run.wait() == "failed"

    assert run.task("report")["try_number"] == 1
    assert run.error("report")[0] == "CrewTaskFailed"
    assert len(started.all()) == 1

    run.clear("report")
    crew.finish(started.wait_for(2))
    eventually(lambda: run.task("report")["state"] == "success", 90)


@nightly
def test_uncertain_kickoff_is_retried_if_configured(begin, crews):
    crews["uncertain"].faults.answer(502, on="kickoff", after_taken=True)
    run, started, crew = begin("reattach_uncertain_retry", "uncertain")
    crew.finish(started.wait_for(2))

    assert run.wait() == "success"
    assert len(started.all()) == 2


@nightly
@remembers
def test_retry_after_a_kill_during_the_kickoff_fails(begin, airflow, crews):
    crew = crews["uncertain"]
    crew.requests.clear()
    crew.faults.hang(on="kickoff", after_taken=True)
    run, started, _ = begin("reattach_uncertain", "uncertain")
    eventually(lambda: crew.requests.on("kickoff"), 90)
    # The process of the test before may still be ending; this one waits for an answer that does not come.
    (process,) = eventually(lambda: found if len(found := task_processes(airflow)) == 1 else None, 30)
    os.kill(process, signal.SIGKILL)

    assert run.wait() == "failed"
    assert run.task("report")["try_number"] == 2
    assert run.error("report", 2)[0] == "CrewTaskFailed"
    assert len(crew.requests.on("kickoff")) == 1
    assert len(started.all()) == 1
