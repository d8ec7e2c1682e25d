"""Every example DAG, run by a real Airflow and read back through the REST API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.airflow_runs import ROOT, Run, eventually, kick_off

pytestmark = pytest.mark.timeout(300)

SPENT = ("kickoff_id", "usage", "execution_time")


@pytest.fixture(scope="module")
def runs(start, crews):
    """All of them at once, as on an ordinary morning."""
    return {
        "crew_in_one_task": start("crew_in_one_task", topic="harbours"),
        "crew_kickoff_and_sensor": start("crew_kickoff_and_sensor"),
        "crew_between_tasks": start("crew_between_tasks"),
        "crew_with_fallback": start("crew_with_fallback", crew="crew_failing"),
        "crew_json_output": start("crew_json_output"),
        "crew_human_input": start("crew_human_input", crew="crew_pausing"),
        "crew_asset": start("crew_asset", topic="tides"),
        "crew_from_python": start("crew_from_python"),
        "crew_restore_flow_state": start("crew_restore_flow_state", crew="crew_flow"),
        "crew_wait_for_execution": start("crew_wait_for_execution", kickoff_id=kick_off(crews["default"])),
    }


def test_every_example_is_tested(runs):
    assert {path.stem for path in (ROOT / "example_dags").glob("*.py")} == {*runs, "crew_fan_out", "crew_budget"}


def test_one_task_returns_the_result(runs):
    run = runs["crew_in_one_task"]

    assert run.wait() == "success"
    result = run.xcom("report")
    assert {*result} == {
        "kickoff_id",
        "output",
        "output_json",
        "tasks",
        "tasks_complete",
        "usage",
        "execution_time",
    }
    assert (result["tasks_complete"], result["usage"]) == (True, None)
    assert result["output"] == "Briefing: harbours"
    assert [task["agent"] for task in result["tasks"]] == ["Researcher", "Writer"]
    assert run.xcom("report", "kickoff_id") == result["kickoff_id"]


@pytest.mark.parametrize("dag_id", ["crew_human_input", "crew_from_python", "crew_wait_for_execution"])
def test_example_without_a_test_of_its_own_succeeds(runs, dag_id):
    assert runs[dag_id].wait() == "success"


def test_sensor_returns_the_result_of_the_kickoff(runs):
    run = runs["crew_kickoff_and_sensor"]

    assert run.wait() == "success"
    assert run.xcom("result")["kickoff_id"] == run.xcom("kickoff")
    assert run.xcom("result")["output"] == "Briefing: electric ferries"


def test_crew_between_tasks_passes_its_output(runs, crews):
    run = runs["crew_between_tasks"]

    assert run.wait() == "success"
    assert run.xcom("publish") == "Writer: Briefing: electric ferries"
    kickoff_id = run.xcom("brief", "kickoff_id")
    (inputs,) = [kickoff.inputs for kickoff in crews["default"].kickoffs if kickoff.kickoff_id == kickoff_id]
    assert inputs == {"topic": "electric ferries", "audience": "harbour masters"}
    path = f"dags/crew_between_tasks/dagRuns/{run.run_id}/taskInstances/brief"
    assert run.airflow.api.get(path)["rendered_fields"]["inputs"] == inputs


def test_fallback_after_a_crew_has_failed_twice(runs, crews):
    run = runs["crew_with_fallback"]

    assert run.wait() == "success"
    assert run.xcom("publish") == "Last week's report."
    assert run.task("report")["state"] == "failed"
    origins = [kickoff.meta["airflow"] for kickoff in crews["failing"].kickoffs]
    assert [origin["try_number"] for origin in origins if origin["run_id"] == run.run_id] == [1, 2]


def test_json_output_is_parsed(runs):
    run = runs["crew_json_output"]

    assert run.wait() == "success"
    assert run.xcom("report")["output_json"]["title"] == "News of electric ferries for harbour masters"
    assert run.xcom("headlines") == ["What harbour masters have to do about electric ferries"]


def test_flow_restores_the_state_of_another_execution(runs, crews):
    run = runs["crew_restore_flow_state"]

    assert run.wait() == "success"
    draft, revision = run.xcom("draft"), run.xcom("revision")
    assert draft["output"] == "cheerful: electric ferries for harbour masters"
    assert revision["output"] == "cheerful: electric ferries for sailors"
    assert draft["kickoff_id"] != revision["kickoff_id"]
    assert revision["usage"] == crews["flow"].scenario.usage
    assert [task["task_id"] for task in draft["tasks"]] == []


def test_failed_task_of_a_fan_out_has_its_name(start, crews):
    before = len(crews["default"].kickoffs)

    run = start("crew_fan_out")

    assert run.wait() == "success"
    ends = {ti["rendered_map_index"]: ti["state"] for ti in run.tasks("report")}
    assert ends == {"about harbours": "success", "about lighthouses": "success", "about sea monsters": "failed"}
    assert run.xcom("summary") == ["Briefing: harbours", "Briefing: lighthouses"]
    assert len(crews["default"].kickoffs) - before == 2


def test_asset_event_starts_a_run_with_the_execution(runs):
    run = runs["crew_asset"]
    assert run.wait() == "success"
    result = run.xcom("report")

    (event,) = run.airflow.api.asset_events("crew_asset")
    assert event["extra"].items() >= {name: result[name] for name in SPENT}.items()
    reader = Run(run.airflow, "crew_asset_reader", eventually(lambda: newest_run(run.airflow)))
    assert reader.wait() == "success"
    assert reader.xcom("publish") == f"Briefing: tides, by execution {result['kickoff_id']} in 11 s"


def newest_run(airflow: Any) -> str | None:
    found = airflow.api.get("dags/crew_asset_reader/dagRuns")["dag_runs"]
    return found[0]["dag_run_id"] if found else None
