"""A deferred task asks under Required Actions while its crew waits for human input, and may send the answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import requests

from airflow_provider_crew.answers.people import APPROVE, SEND_BACK
from airflow_provider_crew.local.scenario import Delivery
from airflow_provider_crew.triggers.events import HAS_ANSWERED
from dev.rest import ApiError
from dev.settings import WEBHOOK_SECRET
from tests.airflow_runs import eventually, live
from tests.faults.held import HeldAnswer
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, row

ASKS = live(LONG, human_input=True)


def given(**changes: Any) -> dict[str, Any]:
    """Return the options of a row whose crew asks about a draft, with these changes of the crew."""
    return {"scenario": ASKS.model_copy(update=changes), "answer_in_airflow": True}


def asked(scene) -> None:
    """Wait until a user can answer the crew."""
    eventually(lambda: scene.run.open_requests() and scene.run.may_be_answered(scene.task_id), pause=1.0)


def answer_of(scene) -> dict[str, Any]:
    """Wait until the crew has responded to the only answer, and return it."""
    scene.answered("resume")
    (request,) = scene.crew.requests.on("resume")
    return dict(request.json)


@row(COMPLETED, core=True, scenario=ASKS, human_input=True)
def test_required_action_is_answered_too_early(scene):
    """A user chooses Answered, but the crew still waits. The user answers the crew and chooses Answered again."""
    scene.start()
    asked(scene)
    scene.run.respond(scene.task_id, HAS_ANSWERED)
    eventually(lambda: not scene.run.open_requests(), pause=1.0)
    asked(scene)
    scene.crew.approve(scene.execution())
    scene.run.respond(scene.task_id, HAS_ANSWERED)
    scene.finish()


@row(COMPLETED, core=True, **given(human_input_webhook=Delivery(times=2, nested="data", other_ids=True)))
def test_answer_of_two_users(scene):
    """Two users answer, and a stranger delivers forged questions."""
    scene.start()
    asked(scene)
    url, meta = f"{scene.airflow.url}/crew/events", scene.crew.kickoffs[0].meta
    forged = {"task_id": "forged", "task_output": "A stranger's draft", "meta": meta}
    other = forged | {"meta": {"airflow": meta["airflow"] | {"dag_id": "another"}}}
    secret = {"Authorization": f"Bearer {WEBHOOK_SECRET}"}
    for status, body, headers in ((401, forged, {}), (422, other, secret)):
        assert requests.post(url, json=body, headers=headers, timeout=30).status_code == status
    scene.run.respond(scene.task_id, APPROVE)
    with pytest.raises(ApiError, match="409"):
        scene.run.respond(scene.task_id, SEND_BACK, text="No")
    answer = answer_of(scene)
    assert (answer["executionId"], answer["isApprove"]) == (scene.execution(), True)
    assert answer["humanInputWebhook"]["url"] == url
    assert answer["taskId"] != "forged"
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, forgotten=("deferred",), **given())
def test_answer_after_a_clear(scene):
    """The task is cleared while it asks, and a user answers the next attempt."""
    scene.start()
    asked(scene)
    scene.run.clear(scene.task_id)
    scene.looked()
    asked(scene)
    scene.run.respond(scene.task_id, APPROVE)
    answer_of(scene)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, core=True, forgotten=("deferred",), **given())
def test_question_twice_after_a_clear(scene):
    """The task is cleared while it asks, and its question is delivered twice again. A user answers it."""
    scene.start()
    asked(scene)
    scene.run.clear(scene.task_id)
    scene.wait_for("deferred", tries=2)
    asked(scene)
    kickoff = scene.crew.kickoffs[-1]
    call = {"task_output": "The same draft", "meta": kickoff.meta}
    call["task_id"] = kickoff.standing(scene.crew.now()).question
    for _ in range(2):
        secret = {"Authorization": f"Bearer {WEBHOOK_SECRET}"}
        url = f"{scene.airflow.url}/crew/events"
        assert requests.post(url, json=call, headers=secret, timeout=30).status_code == 204
    scene.run.respond(scene.task_id, APPROVE)
    answer_of(scene)
    scene.finish()


@row(COMPLETED, response_timeout=20, on_response_timeout="approve", **given())
def test_no_answer_in_time(scene):
    """No user answers in time, so the task approves the draft. Airflow's record of the request says so."""
    scene.start()
    assert answer_of(scene)["isApprove"] is True
    (record,) = scene.airflow.api.get(f"{scene.run.path()}/hitlDetails")["hitl_details"]
    approves = "No answer in time. If the crew still waits, Airflow approves the draft"
    assert (record["chosen_options"], record["responded_by_user"]) == ([approves], None)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, retries=1, **given())
def test_answer_and_a_killed_worker(scene):
    """The worker is killed after it has sent an answer, and before the response."""
    held = HeldAnswer(on="resume", for_seconds=math.inf)
    scene.crew.faults.add(held)
    scene.start()
    asked(scene)
    scene.run.respond(scene.task_id, APPROVE)
    eventually(lambda: held.is_held, pause=0.2)
    scene.kill()
    held.release()
    scene.wait_for("deferred", tries=2)
    scene.finish()
