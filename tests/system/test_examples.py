"""Every example DAG in both dialects, run by a real Airflow and read back through the REST API."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost
from tests.airflow_runs import Run, eventually, kick_off
from tests.integration.receivers import chat
from tests.supported import examples, has

SPENT = ("kickoff_id", "usage", "execution_time")
EXAMPLES: dict[str, dict[str, Any]] = {
    "crew_in_one_task": {"topic": "harbours"},
    "crew_production": {},
    "crew_kickoff_and_sensor": {},
    "crew_between_tasks": {},
    "crew_with_fallback": {},
    "crew_json_output": {},
    "crew_human_input": {},
    "crew_answer_in_airflow": {},
    "crew_asset": {"topic": "tides"},
    "crew_from_python": {},
    "crew_fan_out": {},
    "crew_wait_for_execution": {},
    **({"crew_batch": {}} if has("Batches") else {}),
}
# Examples whose crew is not the usual one.
CREWS = {"crew_with_fallback": "failing", "crew_json_output": "json", "crew_production": "json"}
DOCUMENTED = pytest.param("documented", marks=pytest.mark.nightly)
in_both_dialects = pytest.mark.parametrize("dialect", [DOCUMENTED, "deployed"])


def crew_of(dag_id: str, dialect: str) -> str:
    if dag_id in {"crew_human_input", "crew_answer_in_airflow"}:  # only a flow ends its wait without a person
        return {"documented": "waiting", "deployed": "pausing"}[dialect]
    return CREWS.get(dag_id, "default") + ("_deployed" if dialect == "deployed" else "")


@pytest.fixture(scope="module", autouse=True)
def messages(airflow):
    with chat() as (told, address):
        airflow.api.set_connection("chat", {"conn_type": "generic", "password": address})
        yield told


@pytest.fixture(scope="module")
def runs(request, start, crews, tmp_path_factory):
    """All of them at once, as on an ordinary morning, in the dialects whose tests run."""
    tests = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    dialects = {"deployed", *(item.callspec.params["dialect"] for item in tests if "dialect" in item.fixturenames)}
    begun = {}
    for dag_id, conf in EXAMPLES.items():
        for dialect in sorted(dialects):
            crew = crew_of(dag_id, dialect)
            of_one = {"kickoff_id": kick_off(crews[crew])} if dag_id == "crew_wait_for_execution" else {}
            of_one |= {"results": str(tmp_path_factory.mktemp("results"))} if dag_id == "crew_batch" else {}
            if (dag_id, dialect) != ("crew_from_python", "deployed"):
                begun[dag_id, dialect] = start(dag_id, crew=f"crew_{crew}", **conf, **of_one)
    # The documented dialect has no flows.
    begun["crew_restore_flow_state", "deployed"] = start("crew_restore_flow_state")
    return begun


def test_every_example_is_tested():
    assert {path.stem for path in examples()} == {*EXAMPLES, "crew_restore_flow_state", "crew_budget"}


@in_both_dialects
@pytest.mark.skipif(not has("Batches"), reason="a batch needs the task state store of Airflow 3.3")
def test_batch_returns_the_results_of_its_rows(runs, crews, dialect):
    run = runs["crew_batch", dialect]

    assert run.wait() == "success"
    manifest = run.xcom("reports")
    assert (manifest["counts"]["success"], manifest["counts"]["error"]) == (8, 1)
    assert run.xcom("summary") == [f"Briefing: product {number}" for number in range(1, 9)]
    origins = [kickoff.meta["airflow"] for kickoff in crews[crew_of(run.dag_id, dialect)].kickoffs if kickoff.meta]
    rows = [origin["row"] for origin in origins if origin["run_id"] == run.run_id]
    assert sorted(rows) == [f"product {number}" for number in range(1, 9)]
    batch = run.xcom("reports", "crew_progress")["batch"]
    assert (batch["ended"], batch["failed"]) == (9, 1)
    assert [each["keys"] for each in batch["reasons"]] == [["product 9"]]


@in_both_dialects
@pytest.mark.parametrize(
    ("dag_id", "task_id", "returned"),
    [
        ("crew_in_one_task", "report", "Briefing: harbours"),
        ("crew_kickoff_and_sensor", "result", "Briefing: heat pumps"),
        ("crew_between_tasks", "publish", ": Briefing: working from abroad"),
        ("crew_production", "publish", "What the sales team have to do about "),
        ("crew_json_output", "headlines", "What lawyers have to do about data privacy"),
        ("crew_human_input", "report", "kickoff_id"),
        ("crew_answer_in_airflow", "report", "kickoff_id"),
        ("crew_wait_for_execution", "result", "kickoff_id"),
    ],
)
def test_example_succeeds(runs, dag_id, task_id, returned, dialect):
    run = runs[dag_id, dialect]

    assert run.wait() == "success"
    assert returned in str(run.xcom(task_id))


@in_both_dialects
def test_fallback_after_a_crew_has_failed_twice(runs, crews, messages, dialect):
    run = runs["crew_with_fallback", dialect]

    assert run.wait() == "success"
    assert run.xcom("publish") == "Last week's report."
    assert run.task("report")["state"] == "failed"
    origins = [kickoff.meta["airflow"] for kickoff in crews[crew_of(run.dag_id, dialect)].kickoffs]
    assert [origin["try_number"] for origin in origins if origin["run_id"] == run.run_id] == [1, 2]
    (alert,) = eventually(lambda: [each["text"] for each in messages if run.run_id in each["text"]])
    assert alert.startswith(f"[{Cost.ENDED}] crew_with_fallback: report")


def test_production_example_reports_a_failed_crew(messages, start):
    run = start("crew_production", crew="crew_default")  # which returns no JSON

    assert run.wait() == "failed"
    assert run.task("brief")["try_number"] == 1
    (alert,) = eventually(lambda: [each["text"] for each in messages if run.run_id in each["text"]])
    assert alert.startswith(f"[{Cost.ENDED}] crew_production: brief")


def test_flow_restores_the_state_of_another_execution(runs, crews):
    run = runs["crew_restore_flow_state", "deployed"]

    assert run.wait() == "success"
    draft, revision = run.xcom("draft"), run.xcom("revision")
    assert draft["output"] == "cheerful: the spring collection for journalists"
    assert revision["output"] == "cheerful: the spring collection for customers"
    assert draft["kickoff_id"] != revision["kickoff_id"]
    assert revision["usage"] == crews["flow"].scenario.usage
    assert [task["task_id"] for task in draft["tasks"]] == []


@in_both_dialects
def test_hook_in_tasks_returns_the_result(runs, crews, start, dialect):
    for run in runs.values():
        run.wait()  # they share the crew
    crew = crews["default"]
    usual = crew.scenario
    crew.scenario = usual.model_copy(update={"dialect": dialect})
    try:
        # The connection of a hook does not follow the run, so its crew changes its dialect.
        run = runs["crew_from_python", dialect] if dialect == "documented" else start("crew_from_python")
        assert run.wait() == "success"
    finally:
        crew.scenario = usual
    assert run.xcom("finish")["kickoff_id"] in [each.kickoff_id for each in crew.kickoffs]


@in_both_dialects
def test_failed_task_of_a_fan_out_has_its_name(runs, crews, dialect):
    run = runs["crew_fan_out", dialect]

    assert run.wait() == "success"
    ends = {ti["rendered_map_index"]: ti["state"] for ti in run.tasks("report")}
    assert ends == {
        "about tax changes in Norway": "success",
        "about tax changes in Portugal": "success",
        "about tax changes in Utopia": "failed",
    }
    assert run.xcom("summary") == ["Briefing: tax changes in Norway", "Briefing: tax changes in Portugal"]
    origins = [kickoff.meta["airflow"] for kickoff in crews[crew_of(run.dag_id, dialect)].kickoffs if kickoff.meta]
    assert sorted(each["map_index"] for each in origins if each["run_id"] == run.run_id) == [0, 1]


def test_asset_event_starts_a_run_with_the_execution(runs, airflow):
    results = {}
    for run in (run for (dag_id, _), run in runs.items() if dag_id == "crew_asset"):
        assert run.wait() == "success"
        results[run.run_id] = run.xcom("report")

    events = airflow.api.asset_events("crew_asset")
    assert {event["source_run_id"] for event in events} == {*results}
    for event in events:
        result = results[event["source_run_id"]]
        assert event["extra"].items() >= {name: result[name] for name in SPENT}.items()
    newest = results[max(events, key=lambda event: event["timestamp"])["source_run_id"]]
    # Airflow may start one run for both events.
    published = eventually(lambda: published_about(airflow, newest["kickoff_id"]))
    assert published == f"Briefing: tides, by execution {newest['kickoff_id']} in 11 s"
    ends = [found["state"] for found in airflow.api.get("dags/crew_asset_reader/dagRuns")["dag_runs"]]
    assert "failed" not in ends


def published_about(airflow: Any, kickoff_id: str) -> str | None:
    """Return what the reader has published about an execution."""
    for found in airflow.api.get("dags/crew_asset_reader/dagRuns")["dag_runs"]:
        run = Run(airflow, "crew_asset_reader", found["dag_run_id"])
        if run.state == "success" and kickoff_id in (text := run.xcom("publish")):
            return str(text)
    return None
