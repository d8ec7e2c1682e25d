"""Every example DAG, run by a real Airflow and read back through the REST API."""

from __future__ import annotations

import pytest
import requests

from airflow_provider_crew.client.errors import Cost
from tests.airflow_runs import INPUTS, TOKEN, Run, eventually
from tests.integration.receivers import chat
from tests.supported import examples

SPENT = ("kickoff_id", "usage", "execution_time")
# The crew of each example. Only a flow ends its wait without a person.
CREWS = {
    "crew_in_one_task": "default",
    "crew_production": "json",
    "crew_kickoff_and_sensor": "default",
    "crew_between_tasks": "default",
    "crew_with_fallback": "failing",
    "crew_human_input": "pausing",
    "crew_answer_in_airflow": "pausing",
    "crew_asset": "default",
    "crew_from_python": "default",
    "crew_fan_out": "default",
    "crew_wait_for_execution": "default",
    "crew_restore_flow_state": "flow",
    "crew_batch": "default",
}
EXAMPLES = {path.stem: CREWS[path.stem] for path in examples() if path.stem != "crew_budget"}


def needs(example):
    return pytest.mark.skipif(example not in EXAMPLES, reason="the example needs a newer Airflow")


@pytest.fixture(scope="module", autouse=True)
def messages(airflow):
    with chat() as (told, address):
        airflow.api.set_connection("chat", {"conn_type": "generic", "password": address})
        yield told


@pytest.fixture(scope="module")
def runs(start, crews, tmp_path_factory):
    """All of them at once, as on an ordinary morning."""
    secret = {"Authorization": f"Bearer {TOKEN}"}
    started = requests.post(f"{crews['default'].url}/kickoff", json={"inputs": INPUTS}, headers=secret, timeout=30)
    conf = {
        "crew_in_one_task": {"topic": "harbours"},
        "crew_asset": {"topic": "tides"},
        "crew_wait_for_execution": started.json(),
        "crew_batch": {"results": str(tmp_path_factory.mktemp("results"))},
    }
    return {name: start(name, crew=f"crew_{crew}", **conf.get(name, {})) for name, crew in EXAMPLES.items()}


def origins(crews, run):
    """Return what the kickoffs of a run say about their tasks."""
    return [each.meta["airflow"] for each in run.kickoffs(crews[EXAMPLES[run.dag_id]])]


@needs("crew_batch")
def test_batch_returns_the_results_of_its_rows(runs, crews):
    run = runs["crew_batch"]

    assert run.wait() == "success"
    manifest = run.xcom("reports")
    assert (manifest["counts"]["success"], manifest["counts"]["error"]) == (8, 1)
    products = [f"product {number}" for number in range(1, 9)]
    assert run.xcom("summary") == [f"Briefing: {product}" for product in products]
    assert sorted(origin["row"] for origin in origins(crews, run)) == products


@pytest.mark.parametrize(
    ("dag_id", "task_id", "returned"),
    [
        ("crew_in_one_task", "report", "Briefing: harbours"),
        ("crew_kickoff_and_sensor", "result", "Briefing: heat pumps"),
        ("crew_between_tasks", "publish", ": Briefing: working from abroad"),
        ("crew_production", "publish", "What the sales team have to do about "),
        ("crew_human_input", "report", "kickoff_id"),
        ("crew_answer_in_airflow", "report", "kickoff_id"),
        ("crew_wait_for_execution", "result", "kickoff_id"),
        ("crew_from_python", "finish", "kickoff_id"),
    ],
)
def test_example_succeeds(runs, dag_id, task_id, returned):
    run = runs.get(dag_id) or pytest.skip("the example needs a newer Airflow")

    assert run.wait() == "success"
    assert returned in str(run.xcom(task_id))


@needs("crew_with_fallback")
def test_fallback_after_a_crew_has_failed_twice(runs, crews, messages):
    run = runs["crew_with_fallback"]

    assert run.wait() == "success"
    assert run.xcom("publish") == "Last week's report."
    assert run.task("report")["state"] == "failed"
    assert len(origins(crews, run)) == 2
    (alert,) = eventually(lambda: [each["text"] for each in messages if run.run_id in each["text"]])
    # A busy Airflow may not answer in the time that an alert has.
    assert alert.startswith((f"[{Cost.ENDED}] crew_with_fallback: report", f"[{Cost.UNKNOWN}]"))


def test_flow_restores_the_state_of_another_execution(runs, crews):
    run = runs["crew_restore_flow_state"]

    assert run.wait() == "success"
    draft, revision = run.xcom("draft"), run.xcom("revision")
    assert draft["output"] == "cheerful: the spring collection for journalists"
    assert revision["output"] == "cheerful: the spring collection for customers"
    assert draft["kickoff_id"] != revision["kickoff_id"]
    assert revision["usage"] == crews["flow"].scenario.usage
    assert [task["task_id"] for task in draft["tasks"]] == []


def test_failed_task_of_a_fan_out_has_its_name(runs, crews):
    run = runs["crew_fan_out"]

    assert run.wait() == "success"
    ends = {ti["rendered_map_index"]: ti["state"] for ti in run.tasks("report")}
    assert ends == {
        "about tax changes in Norway": "success",
        "about tax changes in Portugal": "success",
        "about tax changes in Utopia": "failed",
    }
    assert run.xcom("summary") == ["Briefing: tax changes in Norway", "Briefing: tax changes in Portugal"]
    assert sorted(origin["map_index"] for origin in origins(crews, run)) == [0, 1]


def test_asset_event_starts_a_run_with_the_execution(runs, airflow):
    run = runs["crew_asset"]
    assert run.wait() == "success"
    result = run.xcom("report")

    (event,) = airflow.api.asset_events("crew_asset")
    assert event["source_run_id"] == run.run_id
    assert event["extra"].items() >= {name: result[name] for name in SPENT}.items()
    (found,) = eventually(lambda: airflow.api.get("dags/crew_asset_reader/dagRuns")["dag_runs"])
    reader = Run(airflow, "crew_asset_reader", found["dag_run_id"])
    assert reader.wait() == "success"
    assert reader.xcom("publish") == f"Briefing: tides, by execution {result['kickoff_id']} in 11 s"
