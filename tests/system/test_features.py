"""What Airflow offers to every operator works with those for crews."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from airflow_provider_crew.local import LocalCrewService
from dev.loopback import HOST
from dev.rest import ApiError
from dev.stack import AirflowStack
from tests.airflow_runs import DASHBOARD, TOKEN, connection, eventually, scenario, task_processes
from tests.supported import AIRFLOW
from tests.system.servers import texts
from tests.system.traces import TRIGGERS, has_secret, traces


@pytest.fixture(
    scope="module", params=["features_deferred", pytest.param("features_sync", marks=pytest.mark.nightly)]
)
def run(request, start):
    started = start(request.param)
    started.wait()
    return started


@pytest.fixture
def kickoffs(run, crews):
    def of(task_id):
        found = [each for each in run.kickoffs(crews["brief"]) if each.meta["airflow"]["task_id"] == task_id]
        return sorted(found, key=lambda kickoff: kickoff.meta["airflow"]["map_index"])

    return of


def test_all_but_the_failing_crew_succeed(run):
    states = {
        (ti["task_id"], ti["map_index"]): ti["state"]
        for ti in run.airflow.api.task_instances(run.dag_id, run.run_id)
    }

    failed = {("failing", -1), ("rejected", -1)}
    assert {task for task, state in states.items() if state != "success"} == failed


def test_inputs_may_hold_xcomargs_and_native_templates(kickoffs):
    (kickoff,) = kickoffs("arguments")

    assert kickoff.inputs == {"topic": ["ONE", "TWO", "THREE"], "audience": "sailors", "number": 7}


def test_mapped_kickoffs_and_sensors(run, kickoffs):
    assert [kickoff.inputs["topic"] for kickoff in kickoffs("kickoffs")] == ["one", "two", "three"]
    for index, kickoff in enumerate(kickoffs("kickoffs")):
        assert kickoff.meta["airflow"]["map_index"] == index
        assert run.xcom("kickoffs", map_index=index) == kickoff.kickoff_id
        assert run.xcom("sensors", map_index=index)["kickoff_id"] == kickoff.kickoff_id


def test_mapped_decorated_tasks_return_their_results(run, kickoffs):
    assert [kickoff.inputs for kickoff in kickoffs("decorated")] == [
        {"topic": topic, "audience": "{{ not rendered }}", "number": 7} for topic in ("one", "two", "three")
    ]
    assert run.xcom("decorated", map_index=1)["output_json"] == {"headlines": ["two for {{ not rendered }}"]}
    assert len(run.xcom("after")) == 2


def test_statsd_gets_the_metrics_of_a_task(run, statsd):
    told = statsd.values(run.dag_id, "arguments")

    assert told["kickoff.started"] == told["execution.completed"] == [1]
    (milliseconds,) = told["execution.duration"]
    assert milliseconds >= 2000
    assert statsd.values(run.dag_id, "failing")["execution.failed"] == [1]
    assert statsd.values(run.dag_id, "rejected")["kickoff.not_taken"] == [1]


@pytest.mark.skipif(AIRFLOW < (3, 2), reason="before 3.2, Airflow sets no tracer in a task's process")
def test_collector_gets_one_span_of_an_execution_below_its_task(run, collector):
    def sent():
        spans = {span.span_id: span for span in collector.of(run.dag_id, run.run_id)}
        executions = [span for span in spans.values() if span.name.startswith("invoke_workflow ")]
        own = [span for span in executions if texts(span)["airflow.task_id"] == "arguments"]
        return [(span, spans[span.parent_span_id]) for span in own if span.parent_span_id in spans]

    ((span, parent),) = eventually(sent)
    assert texts(span)["crewai.execution_uuid"] == run.xcom("arguments", "kickoff_id")
    assert (parent.name, parent.trace_id) == ("worker.arguments", span.trace_id)
    assert span.end_time_unix_nano - span.start_time_unix_nano >= 2e9  # as long as its two tasks


def test_deferred_task_shows_progress_and_holds_no_process_or_token(start, crews, airflow, database):
    run, crew = start("reattach_cleared"), crews["slow"]
    run.wait_for("report", "deferred")
    eventually(lambda: not task_processes(airflow))
    kickoff_id = run.xcom("report", "kickoff_id")
    assert airflow.api.links(run.dag_id, run.run_id, "report")["Crew dashboard"] == DASHBOARD.format(
        kickoff_id=kickoff_id
    )
    assert run.xcom_once_pushed("report", "crew_progress")["completed"] == 0
    assert_holds_no_token(airflow, database, kickoff_id)

    moved_on = {"completed_tasks": 1, "total_tasks": 2}
    crew.set_status(kickoff_id, {"status": "running", "current_task": "writing_task", "progress": moved_on})
    eventually(lambda: run.xcom("report", "crew_progress")["completed"] == 1)
    assert run.task("report")["state"] == "deferred"
    crew.set_status(kickoff_id, {"status": "completed", "result": {"output": "Done."}})
    assert run.wait() == "success"


def assert_holds_no_token(airflow, database, kickoff_id):
    """Read each log and table while a task is deferred. The ``airflow`` fixture looks once more at the end."""
    left = traces(airflow, database)
    xcoms = "xcom_v2" if AIRFLOW >= (3, 4) else "xcom"
    assert all(kickoff_id.encode() in left[place] for place in (TRIGGERS, xcoms))
    assert [place for place, told in left.items() if has_secret(told)] == []


TASKS, LIMIT = 6, 3


@pytest.mark.nightly
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


def pressed(airflow: AirflowStack, **fields: Any) -> Any:
    """Return what the button is answered about a connection that was saved with these fields."""
    names = {"connection_id": "button", "conn_type": "crew"}
    airflow.api.post("connections", {**names, "password": TOKEN, **fields})
    try:
        saved = airflow.api.get("connections/button")
        texts = {name: saved[name] or "" for name in ("description", "host", "login", "password", "schema")}
        # The page's JavaScript makes 0 of a port that is not there.
        sent = {**names, **texts, "port": saved["port"] or 0, "extra": saved["extra"] or "{}"}
        return airflow.api.post("connections/test", sent)
    finally:
        airflow.api.delete("connections/button")


@pytest.mark.nightly
def test_button_shows_the_inputs_of_the_crew(airflow, crews):
    answer = pressed(airflow, host=f"http://{HOST}", port=crews["default"].port)
    assert answer["status"] is True
    assert "topic, audience" in answer["message"]


@pytest.mark.nightly
def test_button_works_without_a_port_where_airflow_allows_it(airflow, crews):
    expected = pytest.raises(ApiError, match="connections/test: 400 .*The host or port to test differs")
    with expected if AIRFLOW == (3, 3) else nullcontext():
        assert pressed(airflow, host=crews["default"].url)["status"] is True
