"""Users answer the crew of the example DAG, through Airflow's REST API and in the Crew tab of two browsers."""

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

TAB = "document.querySelector('.crew-tab')"
FORM = f"{TAB}?.querySelector('.crew-form')"
TASK = "report"


def path(run: Run) -> str:
    return f"dags/{run.dag_id}/dagRuns/{quote(run.run_id, safe='')}"


def asks(run: Run) -> bool:
    details = run.airflow.api.get(f"{path(run)}/hitlDetails", response_received=False)["hitl_details"]
    return any(APPROVE in detail["options"] for detail in details) and run.may_be_answered(TASK)


def test_example_sends_the_answers_of_a_person(airflow, start, crews):
    run = start("crew_answer_in_airflow", crew="crew_answering")

    for number, (option, text) in enumerate(((SEND_BACK, "Shorter, please"), (APPROVE, None)), start=1):
        eventually(partial(asks, run), pause=1.0)
        answer = {"chosen_options": [option], "params_input": {"text": text}}
        airflow.api.patch(f"{path(run)}/taskInstances/report/-1/hitlDetails", answer)
        eventually(partial(_has_sent, crews, run, number), pause=1.0)

    assert run.wait() == "success"
    assert [each["isApprove"] for each in _answers(crews, run)] == [False, True]
    assert len(_kickoffs(crews, run)) == 1


@pytest.fixture
def browsers(airflow) -> Iterator[tuple[Page, Page]]:
    token = requests.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"]
    with Chromium() as chromium:
        both = chromium.page(), chromium.page()
        for page in both:
            page.resize(1400, 1000)
            page.log_in(airflow.url, token)
        yield both
        for page in both:
            assert [error for error in page.errors if "crew-tab" in error] == []


@pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium")
@pytest.mark.nightly
def test_stale_browser_approves_no_other_draft(start, crews, browsers):
    run = start("crew_answer_in_airflow", crew="crew_answering")
    page, stale = browsers
    eventually(partial(asks, run), pause=1.0)
    for each in browsers:
        each.open(f"{run.airflow.url}/dags/{run.dag_id}/runs/{quote(run.run_id)}/tasks/{TASK}/plugin/crew")
        each.wait_for(FORM)
        assert "Notes on" in each.evaluate(f"{TAB}.querySelector('.crew-output').innerText")
    _set_network(stale, offline=True)

    _set_network(page, latency=2000)
    page.evaluate(f"{FORM}.querySelector('textarea').focus()")
    page.call("Input.insertText", text="Shorter, please")
    page.wait_for(f"{_button(APPROVE)}.disabled")
    page.evaluate(f"{_button(SEND_BACK)}.click(), {_button(SEND_BACK)}?.click()")
    page.wait_for(f"!{FORM} || {_button(SEND_BACK)}.disabled")
    _set_network(page)
    eventually(partial(_has_sent, crews, run, 1), pause=1.0)
    page.wait_for(f"{FORM} && {TAB}.innerText.includes('Draft 2')")
    assert "sent the draft back. Delivered." in page.evaluate(f"{TAB}.innerText")

    eventually(partial(asks, run), pause=1.0)
    assert "Draft 2" not in stale.evaluate(f"{TAB}.innerText")
    _set_network(stale)
    stale.evaluate(f"{_button(APPROVE)}.click()")
    page.wait_for(f"{TAB}.innerText.includes('approved the draft. No effect.')")
    eventually(partial(asks, run), pause=1.0)
    assert len(_answers(crews, run)) == 1

    run.clear(TASK, keep_task_state=True)
    eventually(lambda: run.task(TASK)["try_number"] == 2 and asks(run), pause=1.0)
    page.wait_for(f"{FORM} && {TAB}.innerText.includes('Draft 2')")
    page.evaluate(f"{_button(APPROVE)}.click()")

    assert run.wait() == "success"
    page.wait_for(f"{TAB}.innerText.includes('Completed') && {TAB}.innerText.includes('approved the draft. Del')")
    answers = _answers(crews, run)
    assert [(each["humanFeedback"], each["isApprove"]) for each in answers] == [
        ("Shorter, please", False),
        ("Approved.", True),
    ]
    assert len(_kickoffs(crews, run)) == 1


@pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium")
def test_required_actions_return_the_question_of_their_draft(start, crews, browsers):
    run = start("crew_answer_in_airflow", crew="crew_answering")
    page, _ = browsers
    eventually(partial(asks, run), pause=1.0)
    task = f"{run.airflow.url}/dags/{run.dag_id}/runs/{quote(run.run_id)}/tasks/{TASK}"
    page.open(f"{task}/required_actions?_options={quote(json.dumps([APPROVE]))}")
    respond = "[...document.querySelectorAll('button')].find((each) => each.innerText.trim() === 'Respond')"
    page.wait_for(f"{respond} && !{respond}.disabled")
    page.evaluate(f"{respond}.click()")

    assert run.wait() == "success"
    (answered,) = run.airflow.api.get(f"{path(run)}/hitlDetails")["hitl_details"]
    (answer,) = _answers(crews, run)
    assert answered["params_input"]["question"] == answer["taskId"]


def _button(option: str) -> str:
    return f"[...{FORM}.querySelectorAll('button')].find((each) => each.innerText === {option!r})"


def _set_network(page: Page, *, offline: bool = False, latency: float = 0.0) -> None:
    """Let a page wait so many milliseconds for each response, or get none."""
    conditions = {"offline": offline, "latency": latency, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", **conditions)


def _kickoffs(crews, run: Run) -> list[Any]:
    return [each for each in crews["answering"].kickoffs if each.meta["airflow"]["run_id"] == run.run_id]


def _answers(crews, run: Run) -> list[dict[str, Any]]:
    ids = {each.kickoff_id for each in _kickoffs(crews, run)}
    bodies = [request.json for request in crews["answering"].requests.on("resume")]
    return [each for each in bodies if each["executionId"] in ids]


def _has_sent(crews, run: Run, number: int) -> bool:
    return len(_answers(crews, run)) == number
