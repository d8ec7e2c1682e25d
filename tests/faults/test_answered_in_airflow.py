"""A deferred task asks under Required Actions while its crew waits for human input, and may send the answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import requests

from airflow_provider_crew.answers.attempt import ANSWER, APPROVE, KEY, SEND_BACK
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING
from dev.rest import ApiError
from dev.settings import WEBHOOK_SECRET
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, Ends, row
from tests.faults.scenes import Code
from tests.faults.test_people import ASKS
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")

INPUT: dict[str, Any] = {"scenario": ASKS, "human_input": True}
_LAST = ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="Briefing: {topic}")


def asking(*drafts: str, **changes: Any) -> Scenario:
    """Return a crew that asks about each of these drafts."""
    asks = [ScenarioTask(name=f"task_{text}", human_input=True, output=text) for text in drafts]
    return Scenario.model_validate(ASKS.model_dump() | {"tasks": [*asks, _LAST]} | changes)


def given(**changes: Any) -> dict[str, Any]:
    """Return the options of a row whose crew asks about one draft."""
    return {"scenario": asking("draft-1", **changes), "answer_in_airflow": True}


def open_requests(scene) -> list[dict[str, Any]]:
    """Return the requests of the task that a user can answer now."""
    path = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/hitlDetails"
    return list(scene.airflow.api.get(path, response_received=False)["hitl_details"])


def ask(scene) -> None:
    """Start, and return when the task has asked and a user can answer."""
    scene.start()
    asked(scene, "")


def asked(scene, draft: str) -> dict[str, Any]:
    """Wait until a user can answer a question about this draft, and return the request."""

    def found() -> dict[str, Any] | None:
        return next((each for each in open_requests(scene) if draft in each["body"]), None)

    request: dict[str, Any] = eventually(found, pause=1.0)
    eventually(lambda: scene.run.may_be_answered(scene.task_id), pause=1.0)
    return request


def choose(scene, option: str, **text: str) -> None:
    """Answer the request."""
    task = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/taskInstances/{scene.task_id}/-1"
    answer = {"chosen_options": [option], "params_input": text}
    scene.airflow.api.patch(f"{task}/hitlDetails", answer)


def sent(scene, times: int) -> list[dict[str, Any]]:
    """Wait until the crew has responded to this many answers, and return them."""
    scene.answered("resume", times)
    answers = [request.json for request in scene.crew.requests.on("resume")]
    assert len(answers) == times
    return answers


@row(COMPLETED, core=True, **INPUT)
def test_required_action_is_answered(scene):
    """A user answers the crew and chooses Answered."""
    ask(scene)
    scene.crew.approve(scene.execution())
    choose(scene, HAS_ANSWERED)
    scene.finish()


@row(COMPLETED, **INPUT)
def test_required_action_is_answered_too_early(scene):
    """A user chooses Answered, but the crew still waits."""
    ask(scene)
    choose(scene, HAS_ANSWERED)
    eventually(lambda: not open_requests(scene), pause=1.0)
    eventually(lambda: open_requests(scene), pause=1.0)
    scene.crew.approve(scene.execution())
    scene.finish()


@row(Ends("failed", "only the kickoff ID", "running"), retries=2, **INPUT)
def test_required_action_stops_the_wait(scene):
    """A user chooses Stop waiting."""
    ask(scene)
    choose(scene, STOP_WAITING)


@row(COMPLETED, **INPUT)
def test_required_action_is_closed_by_the_trigger(scene):
    """The crew continues, and no user answers under Required Actions."""
    ask(scene)
    scene.crew.approve(scene.execution())
    eventually(lambda: not open_requests(scene), pause=1.0)
    scene.finish()


@row(COMPLETED, **INPUT)
def test_required_action_is_answered_while_the_trigger_fires(scene):
    """The crew completes at the moment at which a user answers."""
    ask(scene)
    scene.crew.approve(scene.execution())
    scene.finish()
    choose(scene, HAS_ANSWERED)


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


@row(COMPLETED, scenario=asking("Which port?", "draft-2", "draft-3"), answer_in_airflow=True)
def test_answer_to_each_of_three_questions(scene):
    """A crew asks a question and shows two drafts, and a user answers each."""
    scene.start()
    for draft, option, text in (
        ("Which port?", ANSWER, {"text": "Bergen"}),
        ("draft-2", APPROVE, {}),
        ("draft-3", APPROVE, {}),
    ):
        asked(scene, draft)
        choose(scene, option, **text)
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
        assert requests.post(url, json=body, headers=headers, timeout=30).status_code == status
    choose(scene, APPROVE)
    with pytest.raises(ApiError, match="409"):
        choose(scene, SEND_BACK, text="No")
    (answer,) = sent(scene, 1)
    assert answer["taskId"] != "forged"
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, forgotten=("deferred",), **given())
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
    assert scene.run.stored(scene.task_id)[KEY]["outcome"] == "uncertain"
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
