"""The recipes of docs/recipes.md, run by a real Airflow with a PostgreSQL and a chat."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from airflow_provider_crew.client import timing
from airflow_provider_crew.local import LocalCrewService
from dev.postgres import PostgresServer
from dev.settings import WEBHOOK_SECRET
from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN, deployed, eventually, live, scenario
from tests.integration.pages import PAGES, RECIPES, blocks
from tests.integration.receivers import chat, receiver
from tests.supported import has

OUT_OF_CREDIT = deployed(scenario(0, seconds=1, error="The writer ran out of {{ credit }} & <time>"))
NEWS = ["electricity prices: what changed this week", "What traders have to do about electricity prices"]


@pytest.fixture(scope="module")
def warehouse(airflow: AirflowStack) -> Iterator[PostgresServer]:
    with PostgresServer() as database:
        pages = (page for page in PAGES if page.startswith(RECIPES))
        for statement in (each for page in pages for each in blocks(page, "sql")):
            database.execute(statement)
        at = urlsplit(database.url)
        fields = {"host": at.hostname, "port": at.port, "login": at.username, "password": at.password}
        airflow.api.set_connection("warehouse", {"conn_type": "postgres", "schema": at.path[1:], **fields})
        yield database


@pytest.fixture
def crew(crews: dict[str, LocalCrewService]) -> Iterator[LocalCrewService]:
    """Return the crew of the recipes. A test may have it do something else."""
    crew = crews["default"]
    usual = crew.scenario
    yield crew
    crew.scenario = usual
    crew.faults.clear()


@pytest.mark.nightly
def test_each_row_starts_a_crew_and_the_failed_one_is_named(start, warehouse, crew):
    topics = ["buoys", "harbours", "lighthouses"]
    warehouse.execute("DELETE FROM tickets")
    for topic in topics:
        warehouse.execute("INSERT INTO tickets (subject, customer) VALUES (%s, 'sailors')", topic)
    crew.faults.answer(422, on="kickoff", body={"error": "Rejected", "message": "not this one"})

    run = start("crew_for_each_row")

    assert run.wait() == "failed"
    reports = {ti["rendered_map_index"]: ti for ti in run.tasks("draft")}
    assert sorted(reports) == topics
    (refused,) = [topic for topic in topics if reports[topic]["state"] == "failed"]
    assert {ti["state"] for ti in reports.values()} == {"success", "failed"}
    kind, message = run.error("report_failures")
    assert kind == "AirflowFailException"
    assert refused in message
    assert sorted(each.inputs["topic"] for each in run.kickoffs(crew)) == sorted({*topics} - {refused})
    assert {ti["pool"] for ti in reports.values()} == {"crews"}


@pytest.mark.nightly
@pytest.mark.skipif(not has("Recipe: retry policy"), reason="Airflow has retry policies from 3.3 on")
def test_retry_policy_fails_after_a_failed_crew(start, crew):
    crew.scenario = OUT_OF_CREDIT

    run = start("crew_retry_policy")

    assert run.wait() == "failed"
    assert run.task("report")["try_number"] == 1
    assert len(run.kickoffs(crew)) == 1
    (decision,) = [event for event in run.events("report") if event["event"] == "Retry policy decision"]
    assert decision["action"] == "fail"


@pytest.mark.nightly
@pytest.mark.parametrize(("answer", "then"), [("Approve", "success"), ("Reject", "skipped")])
def test_output_is_published_after_approval_only(start, crew, airflow, answer, then):
    run = start("crew_approval")
    eventually(lambda: run.task("approval")["state"] in {"deferred", "awaiting_input"})
    asked = airflow.api.get(f"{run.path('approval')}/-1/hitlDetails")
    (execution,) = run.kickoffs(crew)
    brief = f"Briefing: {execution.inputs['topic']}"
    assert (asked["body"], asked["options"]) == (brief, ["Approve", "Reject"])

    # No person is faster. Airflow sometimes fails a task that goes on at once.
    time.sleep(timing.SHORTEST_DEFERRAL)
    run.respond("approval", answer)

    assert run.wait() == "success"
    assert run.task("publish")["state"] == then
    assert then == "skipped" or run.xcom("publish") == f"Published: {brief}"
    assert len(run.kickoffs(crew)) == 1


@pytest.mark.nightly
def test_chat_gets_the_task_that_waits_for_human_input(start, airflow):
    with (
        LocalCrewService(live(scenario(1), human_input=True), token=TOKEN, call_webhooks=True) as crew,
        chat() as (told, chat_url),
        receiver(AIRFLOW_URL=airflow.url, CHAT_URL=chat_url, WEBHOOK_SECRET=WEBHOOK_SECRET) as webhook_url,
    ):
        airflow.api.set_connection("crew_input_webhook", json.loads(crew.connection_json))

        run = start("crew_input_webhook", crew="crew_input_webhook", webhook_url=webhook_url)

        (message,) = eventually(lambda: told)
        (execution,) = crew.kickoffs
        page = f"{airflow.url}/dags/crew_input_webhook/runs/{run.run_id.replace(':', '%3A').replace('+', '%2B')}"
        assert execution.kickoff_id in message["text"]
        assert message["text"].endswith(f"{page}/tasks/report\nNotes on the new office")
        crew.approve(execution.kickoff_id)
        assert run.wait() == "success"
        assert len(told) == 1


@pytest.mark.nightly
def test_output_is_in_the_table_once(start, warehouse):
    run = start("crew_into_table", crew="crew_json")

    assert run.wait() == "success"
    written = warehouse.execute("SELECT kickoff_id, number, text, urgent FROM headlines ORDER BY number")
    kickoff_id = run.xcom("news", "kickoff_id")
    assert written == [(kickoff_id, 0, NEWS[0], False), (kickoff_id, 1, NEWS[1], True)]
    run.clear("store")
    assert run.wait() == "success"
    assert run.task("store")["try_number"] == 2
    assert warehouse.execute("SELECT count(*) FROM headlines") == [(2,)]


@pytest.mark.skipif(not has("Batches"), reason="a batch needs the task state store of Airflow 3.3")
def test_brief_of_each_account_is_in_the_table(start, warehouse, crew, tmp_path):
    last = crew.scenario.tasks[-1].model_copy(update={"output": '{"brief": "{topic}"}'})
    crew.scenario = crew.scenario.model_copy(update={"tasks": (*crew.scenario.tasks[:-1], last)})
    warehouse.execute("DELETE FROM accounts")
    warehouse.execute("DELETE FROM briefs")
    for number in range(1, 6):
        warehouse.execute("INSERT INTO accounts VALUES (%s, %s, 'retail')", number, f"account {number}")

    run = start("crew_batch_into_table", results=str(tmp_path))

    assert run.wait() == "success"
    stored = [(number, f'{{"brief": "account {number}"}}') for number in range(1, 6)]
    assert warehouse.execute("SELECT account, brief FROM briefs ORDER BY account") == stored
    assert len(run.kickoffs(crew)) == 5
    run.clear("briefs")
    assert run.wait() == "success"
    assert run.task("briefs")["try_number"] == 2
    assert len(run.kickoffs(crew)) == 5
    assert warehouse.execute("SELECT count(*) FROM briefs") == [(5,)]


@pytest.mark.nightly
@pytest.mark.skipif(not has("Task loops"), reason="Airflow has task loops from 3.4 on")
def test_crew_writes_again_until_the_judge_is_content(start, crew):
    run = start("crew_loop")

    assert run.wait() == "success"
    assert [each.inputs["topic"] for each in run.kickoffs(crew)] == [
        "office chairs. ",
        "office chairs. Add the prices.",
    ]
    assert run.xcom("publish") == "Published: Briefing: office chairs. Add the prices."
