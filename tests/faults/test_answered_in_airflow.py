"""A user answers the crew under Required Actions, and the task sends the answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import requests as http

from airflow_provider_crew.answers.attempt import ANSWER, APPROVE, KEY, SEND_BACK
from airflow_provider_crew.local import Scenario, ScenarioTask
from dev.rest import ApiError
from dev.settings import WEBHOOK_SECRET
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, Ends, paid_again, row
from tests.faults.scenes import Code
from tests.faults.test_people import ASKS
from tests.faults.test_required_actions import requests
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")

_LAST = ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="Briefing: {topic}")


def asking(*drafts: str, **changes: Any) -> Scenario:
    """Return a crew that asks about each of these drafts."""
    asks = [ScenarioTask(name=f"task_{text}", human_input=True, output=text) for text in drafts]
    return Scenario.model_validate(ASKS.model_dump() | {"tasks": [*asks, _LAST]} | changes)


def given(**changes: Any) -> dict[str, Any]:
    """Return the options of a row whose crew asks about one draft."""
    return {"scenario": asking("draft-1", **changes), "answer_in_airflow": True}


def asked(scene, draft: str) -> dict[str, Any]:
    """Wait until a user can answer a question about this draft, and return the request."""

    def found() -> dict[str, Any] | None:
        return next((each for each in requests(scene) if draft in each["body"]), None)

    request: dict[str, Any] = eventually(found, pause=1.0)
    eventually(lambda: scene.run.may_be_answered(scene.task_id), pause=1.0)
    return request


def choose(scene, option: str, text: Any = None) -> None:
    """Answer the request."""
    task = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/taskInstances/{scene.task_id}/-1"
    answer = {"chosen_options": [option], "params_input": {"text": text}}
    scene.airflow.api.patch(f"{task}/hitlDetails", answer)


def outcome(scene) -> str:
    """Return the outcome of the last answer, from the task state store."""
    task = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/taskInstances/{scene.task_id}"
    found: str = scene.airflow.api.get(f"{task}/state-store/{KEY}?map_index=-1")["value"]["outcome"]
    return found


def sent(scene, times: int) -> list[dict[str, Any]]:
    """Wait until the crew has responded to this many answers, and return them."""
    scene.answered("resume", times)
    answers = [request.json for request in scene.crew.requests.on("resume")]
    assert len(answers) == times
    return answers


@row(COMPLETED, core=True, **given(resume="production"))
def test_answer_approves(scene):
    """A user approves the crew's draft."""
    scene.start()
    request = asked(scene, "draft-1")
    assert request["options"][:3] == [APPROVE, SEND_BACK, ANSWER]
    choose(scene, APPROVE)
    (answer,) = sent(scene, 1)
    assert answer["executionId"] == scene.execution()
    assert (answer["humanFeedback"], answer["isApprove"]) == ("Approved.", True)
    assert answer["humanInputWebhook"]["url"] == f"{scene.airflow.url}/crew/events"
    scene.finish()


@row(COMPLETED, **given(resume="production"))
def test_answer_sends_back(scene):
    """A user sends the draft back with a text, and approves the next one."""
    scene.start()
    asked(scene, "draft-1")
    choose(scene, SEND_BACK, "Shorter, please")
    sent(scene, 1)
    eventually(lambda: not requests(scene), pause=1.0)
    asked(scene, "draft-1")
    choose(scene, APPROVE)
    answers = sent(scene, 2)
    assert [(each["humanFeedback"], each["isApprove"]) for each in answers] == [
        ("Shorter, please", False),
        ("Approved.", True),
    ]
    assert answers[0]["taskId"] != answers[1]["taskId"]
    scene.finish()


@row(COMPLETED, scenario=asking("Which port?", "draft-2", "draft-3"), answer_in_airflow=True)
def test_answer_to_each_of_three_questions(scene):
    """A crew asks a question and shows two drafts, and a user answers each."""
    scene.start()
    for draft, option, text in (
        ("Which port?", ANSWER, "Bergen"),
        ("draft-2", APPROVE, None),
        ("draft-3", APPROVE, None),
    ):
        asked(scene, draft)
        choose(scene, option, text)
    answers = sent(scene, 3)
    assert answers[0]["humanFeedback"] == "Bergen"
    assert len({each["taskId"] for each in answers}) == 3
    assert {each["executionId"] for each in answers} == {scene.execution()}
    scene.finish()


@row(COMPLETED, **given(human_input_webhook={"times": 2, "nested": "data", "other_ids": True}))
def test_answer_of_two_users(scene):
    """Two users answer, and a stranger delivers forged questions."""
    scene.start()
    asked(scene, "draft-1")
    url, meta = f"{scene.airflow.url}/crew/events", scene.crew.kickoffs[0].meta
    forged = {"task_id": "forged", "task_output": "draft-1 of a stranger", "meta": meta}
    other = forged | {"meta": {"airflow": meta["airflow"] | {"dag_id": "another"}}}
    secret = {"Authorization": f"Bearer {WEBHOOK_SECRET}"}
    for status, body, headers in (
        (401, forged, {}),
        (401, forged, {"Authorization": "Bearer wrong"}),
        (413, forged | {"task_output": "x" * 65536}, secret),
        (422, other, secret),
        (422, {"task_id": "forged"}, secret),
    ):
        assert http.post(url, json=body, headers=headers, timeout=30).status_code == status
    choose(scene, APPROVE)
    with pytest.raises(ApiError, match="409"):
        choose(scene, SEND_BACK, "No")
    (answer,) = sent(scene, 1)
    assert answer["taskId"] != "forged"
    scene.finish()


@row(COMPLETED, **given())
def test_answer_elsewhere(scene):
    """A person answers the crew in its dashboard while a request is open in Airflow."""
    scene.start()
    asked(scene, "draft-1")
    scene.looked(2)
    scene.crew.approve(scene.execution())
    eventually(lambda: not requests(scene), pause=1.0)
    scene.finish()
    assert not scene.crew.requests.on("resume")


@row(COMPLETED, **given())
def test_answer_without_a_response(scene):
    """The crew takes the answer, and its response is lost."""
    scene.crew.faults.reset(on="resume", after_taken=True)
    scene.start()
    asked(scene, "draft-1")
    choose(scene, APPROVE)
    eventually(lambda: len(scene.crew.requests.on("resume")) == 1, pause=1.0)
    scene.looked()
    scene.finish()


@row(Ends("failed", "only the kickoff ID", "running"), retries=2, **given(resume="failing"))
def test_answer_that_breaks_the_crew(scene):
    """The crew accepts the answer, and the ID that it returns fails."""
    scene.start()
    asked(scene, "draft-1")
    choose(scene, APPROVE)
    sent(scene, 1)


@row(COMPLETED_IN_ATTEMPT_2, forgotten={"deferred": paid_again()}, **given())
def test_answer_after_a_clear(scene):
    """The task is cleared while it asks, and a user answers the next attempt."""
    scene.start()
    asked(scene, "draft-1")
    scene.run.clear(scene.task_id)
    scene.looked()
    asked(scene, "draft-1")
    choose(scene, APPROVE)
    sent(scene, 1)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, retries=1, **given())
def test_answer_and_a_killed_worker(scene):
    """The worker is killed after it has sent an answer, and before the response."""
    held = HeldAnswer(on="resume", for_seconds=math.inf)
    scene.crew.faults.add(held)
    scene.start()
    asked(scene, "draft-1")
    choose(scene, APPROVE)
    eventually(lambda: held.is_held, pause=0.2)
    scene.kill()
    held.release()
    scene.wait_for("deferred", tries=2)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, retries=1, pre_execute=Code("dies_before_answer"), **given())
def test_answer_that_a_killed_worker_never_sent(scene):
    """The worker is killed after it has stored the intent of an answer, and before the request."""
    scene.start()
    asked(scene, "draft-1")
    choose(scene, APPROVE)
    scene.wait_for("deferred", tries=2)
    assert not scene.crew.requests.on("resume")
    asked(scene, "draft-1")
    assert outcome(scene) == "uncertain"
    choose(scene, APPROVE)
    sent(scene, 1)
    scene.finish()


@row(COMPLETED, response_timeout=20, on_response_timeout="approve", **given())
def test_answer_without_a_user(scene):
    """No user answers in time, and the task approves."""
    scene.start()
    (answer,) = sent(scene, 1)
    assert (answer["humanFeedback"], answer["isApprove"]) == ("Approved.", True)
    scene.finish()


@row(COMPLETED, alone=True, **given())
def test_answer_without_a_triggerer(scene):
    """A user answers while the triggerer is killed."""
    scene.start()
    asked(scene, "draft-1")
    triggerer = scene.airflow.processes["triggerer"]
    triggerer.kill()
    choose(scene, APPROVE)
    sent(scene, 1)
    triggerer.start()
    scene.finish()


@row(COMPLETED, alone=True, **given())
def test_answer_after_a_new_api_server(scene):
    """The API server is restarted while a request is open."""
    scene.start()
    asked(scene, "draft-1")
    server = scene.airflow.processes["api-server"]
    server.stop()
    server.start()
    scene.airflow.wait_until_healthy()
    choose(scene, APPROVE)
    sent(scene, 1)
    scene.finish()
