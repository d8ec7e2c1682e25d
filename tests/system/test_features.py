"""What Airflow offers to every operator works with those for crews."""

from __future__ import annotations

import pytest

from tests.airflow_runs import DASHBOARD, eventually, task_processes


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
        found = [
            kickoff
            for kickoff in crews["brief"].kickoffs
            if kickoff.meta
            and (origin := kickoff.meta.get("airflow"))
            and (origin["run_id"], origin["dag_id"], origin["task_id"]) == (run.run_id, run.dag_id, task_id)
        ]
        return sorted(found, key=lambda kickoff: kickoff.meta["airflow"]["map_index"])

    return of


def test_all_but_the_failing_crew_succeed(run):
    states = {
        (ti["task_id"], ti["map_index"]): ti["state"]
        for ti in run.airflow.api.task_instances(run.dag_id, run.run_id)
    }

    assert {task for task, state in states.items() if state != "success"} == {("called_back", -1)}


def test_inputs_may_hold_xcomargs_and_native_templates(kickoffs):
    (kickoff,) = kickoffs("arguments")

    assert kickoff.inputs == {"topic": ["ONE", "TWO", "THREE"], "audience": "sailors", "number": 7}


def test_mapped_kickoffs_and_sensors(run, kickoffs):
    assert [kickoff.inputs["topic"] for kickoff in kickoffs("kickoffs")] == ["one", "two", "three"]
    for index, kickoff in enumerate(kickoffs("kickoffs")):
        assert kickoff.meta["airflow"]["map_index"] == index
        assert run.xcom("kickoffs", map_index=index) == kickoff.kickoff_id
        assert run.xcom("sensors", map_index=index)["kickoff_id"] == kickoff.kickoff_id


@pytest.mark.parametrize(("callback", "saw"), [("success", "called"), ("failure", "ExecutionFailed")])
def test_callbacks_are_called(run, callback, saw):
    def called():
        found = run.airflow.api.get("variables", limit=100)["variables"]
        return [kept["value"] for kept in found if kept["key"] == f"{run.dag_id}_{run.run_id}_{callback}"]

    assert eventually(called) == [saw]


def test_mapped_decorated_tasks_return_their_results(run, kickoffs):
    assert [kickoff.inputs for kickoff in kickoffs("decorated")] == [
        {"topic": topic, "audience": "{{ not rendered }}", "number": 7} for topic in ("one", "two", "three")
    ]
    assert run.xcom("decorated", map_index=1)["output_json"] == {"headlines": ["two for {{ not rendered }}"]}
    assert len(run.xcom("after")) == 2


def test_a_deferred_task_holds_no_process_and_shows_its_link(start, crews, airflow):
    run = start("reattach_cleared")
    run.wait_for("report", "deferred")
    eventually(lambda: not task_processes(airflow))

    assert run.task("report")["state"] == "deferred"
    assert run.link("report") == DASHBOARD.format(kickoff_id=run.xcom("report", "kickoff_id"))
    crews["slow"].finish(run.xcom("report", "kickoff_id"))
    assert run.wait() == "success"
