"""Users answer the crew of the example DAG, through Airflow's REST API and under Required Actions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import requests

from airflow_provider_crew.answers.attempt import APPROVE, SEND_BACK
from dev.chromium import EXECUTABLE, Chromium, Page
from tests.airflow_runs import Run, eventually
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3."),
]

TASK = "report"


def asks(run: Run) -> bool:
    details = run.airflow.api.get(f"{run.path()}/hitlDetails", response_received=False)["hitl_details"]
    return any(APPROVE in detail["options"] for detail in details) and run.may_be_answered(TASK)


def test_example_sends_the_answers_of_a_person(airflow, start, crews):
    run = start("crew_answer_in_airflow", crew="crew_answering")

    for number, (option, text) in enumerate(((SEND_BACK, "Shorter, please"), (APPROVE, None)), start=1):
        eventually(partial(asks, run), pause=1.0)
        answer = {"chosen_options": [option], "params_input": {"text": text}}
        airflow.api.patch(f"{run.path()}/taskInstances/report/-1/hitlDetails", answer)
        eventually(partial(_has_sent, crews, run, number), pause=1.0)

    assert run.wait() == "success"
    assert [each["isApprove"] for each in _answers(crews, run)] == [False, True]
    assert len(run.kickoffs(crews["answering"])) == 1


@pytest.fixture
def page(airflow) -> Iterator[Page]:
    token = requests.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"]
    with Chromium() as chromium:
        page = chromium.page()
        page.resize(1400, 1000)
        page.log_in(airflow.url, token)
        yield page


@pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium")
def test_required_actions_return_the_question_of_their_draft(start, crews, page):
    run = start("crew_answer_in_airflow", crew="crew_answering")
    eventually(partial(asks, run), pause=1.0)
    task = f"{run.airflow.url}/dags/{run.dag_id}/runs/{quote(run.run_id)}/tasks/{TASK}"
    page.open(f"{task}/required_actions?_options={quote(json.dumps([APPROVE]))}")
    respond = "[...document.querySelectorAll('button')].find((each) => each.innerText.trim() === 'Respond')"
    page.wait_for(f"{respond} && !{respond}.disabled")
    page.evaluate(f"{respond}.click()")

    assert run.wait() == "success"
    (answered,) = run.airflow.api.get(f"{run.path()}/hitlDetails")["hitl_details"]
    (answer,) = _answers(crews, run)
    assert answered["params_input"]["question"] == answer["taskId"]


def _answers(crews, run: Run) -> list[dict[str, Any]]:
    ids = {each.kickoff_id for each in run.kickoffs(crews["answering"])}
    bodies = [request.json for request in crews["answering"].requests.on("resume")]
    return [each for each in bodies if each["executionId"] in ids]


def _has_sent(crews, run: Run, number: int) -> bool:
    return len(_answers(crews, run)) == number
