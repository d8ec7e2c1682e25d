"""Users answer the crew of the example DAG, through Airflow's REST API and under Required Actions."""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import requests

from airflow_provider_crew.answers.people import APPROVE, SEND_BACK
from dev.chromium import EXECUTABLE, Chromium, Page
from tests.airflow_runs import Run, eventually
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3."),
]

TASK = "report"


def asks(run: Run) -> bool:
    return any(APPROVE in each["options"] for each in run.open_requests()) and run.may_be_answered(TASK)


@pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium")
def test_example_sends_the_answers_of_a_person(start, crews):
    run, crew = start("crew_answer_in_airflow", crew="crew_answering"), crews["answering"]

    def answers() -> list[dict[str, Any]]:
        ids = {each.kickoff_id for each in run.kickoffs(crew)}
        bodies = [request.json for request in crew.requests.on("resume")]
        return [each for each in bodies if each["executionId"] in ids]

    eventually(partial(asks, run), pause=1.0)
    run.respond(TASK, SEND_BACK, text="Shorter, please")
    eventually(answers, pause=1.0)
    eventually(partial(asks, run), pause=1.0)
    with Chromium() as chromium:
        approve(chromium.page(), run)
        assert run.wait() == "success"

    requests_ = run.airflow.api.get(f"{run.path()}/hitlDetails")["hitl_details"]
    assert [each["isApprove"] for each in answers()] == [False, True]
    assert requests_[-1]["params_input"]["question"] == answers()[-1]["taskId"]
    assert len(run.kickoffs(crew)) == 1


def approve(page: Page, run: Run) -> None:
    """Approve the draft under Required Actions."""
    page.resize(1400, 1000)
    page.log_in(run.airflow.url, requests.get(f"{run.airflow.url}/auth/token", timeout=30).json()["access_token"])
    task = f"{run.airflow.url}/dags/{run.dag_id}/runs/{quote(run.run_id)}/tasks/{TASK}"
    page.open(f"{task}/required_actions?_options={quote(json.dumps([APPROVE]))}")
    respond = "[...document.querySelectorAll('button')].find((each) => each.innerText.trim() === 'Respond')"
    page.wait_for(f"{respond} && !{respond}.disabled")
    page.evaluate(f"{respond}.click()")
