"""Tasks that answer their crew: the requests on the wire, the records, and what a user is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.answers.people import ANSWER, APPROVE, KEY, SEND_BACK
from airflow_provider_crew.answers.question import QUESTION
from airflow_provider_crew.client.errors import (
    Cost,
    ExecutionUnknown,
    InvalidInputs,
    WaitedTooLong,
)
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING
from tests.airflow_runs import eventually
from tests.integration.dialogs import asking, chosen
from tests.integration.question_receiver import SECRET
from tests.integration.tasks import WatchedService, api_error, fired
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures", "tests.integration.dialog_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")

RUNNING: Any = {"state": "RUNNING", "status": "Task is Running"}
UNKNOWN: Any = {"state": "NOT FOUND", "status": "Task not found"}


def test_answers_are_sent_as_in_the_table(dialog, evaluated):
    """
    Each line has the subject, what is sent, what is kept of it, and the number of requests that have opened.

    A user answers again if the answer was not sent. The last number has all answers until the crew completes.
    """

    def answered(
        option: str, text: Any = None, *, draft: str = "draft-1", response: Any = 200, **more: Any
    ) -> Any:
        dialog.begin()
        dialog.crew.scenario = asking(draft, resume=more.get("resume", "both"))
        waiting, question, execution = dialog.asked(), dialog.kept["task_id"], dialog.crew.kickoffs[-1]
        dialog.store.set(KEY, dialog.kept | more.get("record", {}))
        if response == "lost":
            dialog.crew.faults.reset(on="resume")
        elif response != 200:
            dialog.crew.faults.answer(response, on="resume")
        event = chosen(option, text, at="10:00")
        event["params_input"] |= more.get("asked", {})
        waiting = dialog.resumed(waiting, event | {"responded_by_user": more.get("user", {"name": "Ada"})})
        sent = [(answer.pop("humanFeedback"), answer.pop("isApprove")) for answer in dialog.answers]
        noted = [] if "record" in more else dialog.kept["answers"]
        kept, opened = [(each["user"], each["outcome"], bool(each["why"])) for each in noted], len(dialog.requests)
        if execution.standing(dialog.crew.now()).waiting:
            waiting = dialog.asked(waiting) if "uncertain" in str(kept) else waiting
            if kept and kept[0][1] != "sent":
                waiting = dialog.chosen(waiting, APPROVE)
            else:
                dialog.crew.approve(execution.kickoff_id)
        assert dialog.ended(waiting)["kickoff_id"] == execution.kickoff_id
        proof = {"strategy": "bearer", "token": SECRET}
        about = {"executionId": execution.kickoff_id, "taskId": question}
        about |= {"humanInputWebhook": {"url": dialog.questions.url, "authentication": proof}}
        assert all(about.items() <= answer.items() for answer in dialog.answers)
        assert len(dialog.crew.requests.on("kickoff")) == 1
        return dialog.requests[0]["subject"], sent, kept, opened, len(dialog.answers)

    evaluated("answers.txt", answered=answered)


@pytest.mark.parametrize("dialect", ["deployed", "documented"])
def test_three_questions_in_a_row_are_answered(dialog, dialect):
    way = {"times": 2, "again": True}
    scenario = asking("draft-1", "draft-2", "# Draft 3", resume="production", human_input_webhook=way)
    dialog.crew.scenario = scenario.model_copy(update={"dialect": dialect})
    waiting = None
    for _ in range(3):
        waiting = dialog.chosen(dialog.asked(waiting), APPROVE)

    result = dialog.ended(waiting)

    assert result["output"] == "The end"
    assert result["kickoff_id"] == dialog.crew.kickoffs[0].kickoff_id
    subjects = ["Draft: draft-1 (crew)", "Draft 2: draft-2 (crew)", "Draft 3: Draft 3 (crew)"]
    asked = [request["subject"] for request in dialog.requests if APPROVE in request["options"]]
    assert asked == subjects  # each once, although its webhook is delivered again and again
    assert {answer["executionId"] for answer in dialog.answers} == {result["kickoff_id"]}
    assert len({answer["taskId"] for answer in dialog.answers}) == len(dialog.answers) == 3


def test_no_answer_is_promised_for_after_the_timeout_of_the_task(dialog):
    dialog.task_with(timeout=30, response_timeout=60, on_response_timeout="approve")
    dialog.asked()
    assert dialog.kept["answer_by"] is None


def test_failed_continuation_fails_the_task_without_a_retry(dialog):
    dialog.crew.scenario = asking("draft-1", resume="failing")
    waiting = dialog.asked()

    with pytest.raises(CrewTaskFailed) as caught:
        dialog.task.resume(waiting, chosen(APPROVE))

    kickoff_id = dialog.crew.kickoffs[0].kickoff_id
    assert isinstance(caught.value.failure, ExecutionUnknown)
    assert (caught.value.cost, caught.value.kickoff_id) == (Cost.RUNNING, kickoff_id)
    dialog.task.clear()
    dialog.asked()
    dialog.crew.approve(kickoff_id)  # in the dashboard
    assert len(dialog.answers) == len(dialog.crew.kickoffs) == 1


@pytest.mark.parametrize("by_trigger", [True, False])
def test_cancellation_stops_both_ids(dialog, monkeypatch, by_trigger):
    dialog.crew.scenario = asking("draft-1", resume="production")
    dialog.task_with(cancel_on_kill=True, cancel_on_timeout=True)
    waiting = dialog.chosen(dialog.asked(), APPROVE)
    trigger = dialog.task.revived(waiting)

    if by_trigger:
        monkeypatch.setattr("airflow_provider_crew.triggers.watching.is_marked", AsyncMock(return_value=True))
        asyncio.run(trigger.on_kill())
    else:
        trigger.rules = {**trigger.rules, "deadline": time.time()}
        with pytest.raises(WaitedTooLong):
            dialog.task.resume(waiting, asyncio.run(fired(trigger)))

    ids = {dialog.crew.kickoffs[0].kickoff_id, trigger.rules["continued_as"]}
    assert {request.path for request in dialog.crew.requests.on("stop")} == {f"/stop/{each}" for each in ids}
    assert len(ids) == 2


def test_answer_goes_to_no_other_crew(dialog, monkeypatch):
    waiting = dialog.asked()
    with WatchedService(scenario=asking("draft-1")) as other:
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", other.connection_uri)
        with contextlib.suppress(CrewTaskFailed, TaskDeferred):
            dialog.task.resume(waiting, chosen(APPROVE))

        assert other.requests.on("resume") == []
    assert dialog.answers == []


def test_unreadable_record_is_not_replaced(dialog):
    waiting = dialog.asked()
    known = dialog.kept
    dialog.store.breaks_at = lambda name: name == "get"
    dialog.chosen(waiting, HAS_ANSWERED)
    dialog.store.breaks_at = lambda _: False

    assert dialog.kept == known


def test_request_left_to_an_earlier_attempt_opens_again(dialog, monkeypatch):
    dialog.asked()
    dialog.task.clear()
    waiting = dialog.task.deferred()
    with monkeypatch.context() as patched:
        patched.setattr("airflow_provider_crew.api_server.read_required_action", Mock(side_effect=api_error(404)))
        waiting = dialog.asked(waiting)

    assert dialog.ended(dialog.chosen(waiting, APPROVE))["output"] == "The end"
    assert (len(dialog.requests), len(dialog.answers), len(dialog.crew.kickoffs)) == (2, 1, 1)


def test_answer_to_an_old_question_is_not_sent(dialog):
    dialog.crew.scenario = asking("draft-1", "draft-2")
    dialog.task_with(notifiers=[lambda context: dialog.told.append(context["ti"].task_id)])
    waiting = dialog.asked()
    (kickoff,) = dialog.crew.kickoffs
    dialog.crew.approve(kickoff.kickoff_id)  # in the dashboard, just before
    eventually(lambda: dialog.questions.changes == 2, pause=0.02)

    waiting = dialog.chosen(waiting, APPROVE)

    assert dialog.answers == []
    assert "draft-2" in dialog.requests[-1]["body"]
    assert len(dialog.requests) == len(dialog.told) == 2
    assert dialog.ended(dialog.chosen(waiting, APPROVE))["output"] == "The end"
    assert [answer["taskId"] for answer in dialog.answers] == [dialog.kept["task_id"]]


def test_old_question_is_not_shown_for_a_new_wait(dialog):
    waiting = dialog.asked()
    kickoff_id = dialog.crew.kickoffs[0].kickoff_id
    dialog.crew.set_status(kickoff_id, RUNNING, UNKNOWN)  # it asks again, and the webhook does not arrive

    waiting = dialog.chosen(waiting, APPROVE)

    dialog.crew.at_look(30, lambda: dialog.crew.set_status(kickoff_id))
    dialog.crew.finish(kickoff_id)
    assert dialog.task.finish(waiting)["output"] == "The end"
    assert (len(dialog.requests), len(dialog.answers)) == (1, 1)


def test_question_that_is_delivered_again_replaces_none(dialog):
    dialog.crew.scenario = asking("draft-1", "draft-2")
    waiting = dialog.asked()
    first = dialog.kept["task_id"]
    dialog.asked(dialog.chosen(waiting, APPROVE))
    (kickoff,) = dialog.crew.kickoffs
    dialog.task.clear()
    waiting = dialog.task.deferred()
    for question in (first, dialog.kept["task_id"]):
        again = {"task_id": question, "task_output": "draft", "meta": kickoff.meta}
        assert dialog.questions.deliver(again).status_code == 204

    assert dialog.questions.changes == 2
    assert dialog.ended(dialog.chosen(waiting, APPROVE))["output"] == "The end"
    assert (len(dialog.requests), len(dialog.answers)) == (2, 2)


def test_flow_is_answered_in_its_dashboard(dialog):
    dialog.crew.scenario = asking("draft-1", kind="flow")

    waiting = dialog.asked()
    dialog.crew.approve(dialog.crew.kickoffs[0].kickoff_id)

    assert dialog.ended(waiting)["output"] == "The end"
    assert [request["options"] for request in dialog.requests] == [[HAS_ANSWERED, STOP_WAITING]]
    assert dialog.questions.changes == 0


def test_no_notice_opens_before_the_question(dialog, timing):
    timing(question_wait=3600, people_poll=0.02)
    dialog.crew.scenario = asking("draft-1", human_input_webhook={"delay": 3600})
    dialog.crew.faults.clear()
    waiting = dialog.task.deferred()
    (kickoff,) = dialog.crew.kickoffs
    question = kickoff.standing(dialog.crew.now()).question
    call = {"task_id": question, "task_output": "draft-1", "meta": kickoff.meta}
    dialog.crew.at_look(9, lambda: dialog.questions.deliver(call))

    waiting = dialog.asked(waiting)

    assert [APPROVE in request["options"] for request in dialog.requests] == [True]
    assert dialog.ended(dialog.chosen(waiting, APPROVE))["output"] == "The end"


def test_late_question_replaces_the_notice(dialog):
    users = [{"id": "7", "name": "Ada"}]
    dialog.task_with(assigned_users=users)
    dialog.crew.scenario = asking("draft-1", human_input_webhook={"delay": 3600})
    dialog.crew.faults.clear()
    waiting = dialog.asked()
    assert dialog.requests[-1]["options"] == [HAS_ANSWERED, STOP_WAITING]
    assert dialog.requests[-1]["assigned_users"] == users
    (kickoff,) = dialog.crew.kickoffs
    question = kickoff.standing(dialog.crew.now()).question
    dialog.questions.deliver({"task_id": question, "task_output": "draft-1", "meta": kickoff.meta})

    waiting = dialog.asked(waiting)

    assert dialog.requests[-1]["options"] == [APPROVE, SEND_BACK, ANSWER, HAS_ANSWERED, STOP_WAITING]
    assert dialog.crew.required_actions == []  # the receiver has deleted the first
    assert dialog.ended(dialog.chosen(waiting, APPROVE))["output"] == "The end"


@pytest.mark.parametrize("own", [{}, {"ticket": "42"}])
def test_users_notifiers_and_meta_are_passed_on(dialog, own):
    def fail(_):
        raise RuntimeError("no chat")

    users = [{"id": "7", "name": "Ada"}]
    notifiers = [fail, lambda context: dialog.told.append(context["ti"].task_id)]
    dialog.task_with(assigned_users=users, notifiers=notifiers, meta=own)

    dialog.chosen(dialog.asked(), ANSWER)

    assert dialog.requests[0]["assigned_users"] == users
    assert dialog.told == ["crew"]  # once for each question
    meta = dialog.crew.kickoffs[0].meta
    assert meta.pop("airflow")["task_id"] == "crew"
    assert meta == own


def test_meta_that_renders_to_text_is_rejected(dialog):
    dialog.task_with(meta="no object")

    with pytest.raises(CrewTaskFailed) as caught:
        dialog.task.run()

    assert isinstance(caught.value.failure, InvalidInputs)
    assert (caught.value.cost, dialog.crew.kickoffs) == (Cost.NONE, ())


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"deferrable": False}, {}),
        ({}, {"EVENTS_URL": ""}),
        ({}, {"WEBHOOK_CONN_ID": ""}),
        ({}, {"REQUIRED_ACTIONS": "False"}),
        ({"webhook_conn_id": "crew_other", "webhooks": {"url": "https://hooks.example", "events": []}}, {}),
        ({"webhook_conn_id": "crew_webhook", "deferrable": False}, {}),
    ],
)
def test_missing_condition_is_named_and_nothing_else_changes(dialog, monkeypatch, task_log, options, environment):
    monkeypatch.setenv("AIRFLOW_CONN_CREW_OTHER", f"generic://:other-{SECRET}@")
    for name, value in environment.items():
        monkeypatch.setenv(f"AIRFLOW__CREW__{name}", value)
    dialog.crew.scenario = asking("draft-1").without_waiting()

    assert dialog.task_with(**options).run()["output"] == "The end"

    assert "cannot be answered from Airflow" in task_log.warnings
    assert QUESTION not in dialog.questions.xcoms
    assert "humanInputWebhook" not in json.dumps(dialog.crew.requests.on("kickoff")[0].json)


def test_secret_of_the_receiver_reaches_no_other_address(dialog):
    dialog.crew.scenario = asking("draft-1").without_waiting()

    dialog.task_with(webhooks={"url": "https://hooks.example", "events": []}).run()

    assert SECRET not in json.dumps(dialog.crew.requests.on("kickoff")[0].json)


def test_secret_is_in_no_trigger_xcom_record_or_request(dialog):
    waiting = dialog.asked()
    again = dialog.chosen(waiting, APPROVE)

    shown = [waiting.trigger.serialize(), waiting.kwargs, again.trigger.serialize(), again.kwargs]
    shown += [dialog.questions.xcoms, dialog.requests, dialog.kept]
    assert SECRET not in str(shown)
    assert dialog.crew.token not in str(shown)


def test_automatic_answers_are_sent_as_in_the_table(dialog, timing, evaluated):
    """Each line has what is sent and kept, what Airflow records, and what the last request says of the timeout."""

    def timed_out(choice: str, *drafts: str, response: int = 200, meanwhile: str = "") -> Any:
        dialog.begin()
        dialog.crew.required_actions.clear()
        dialog.crew.scenario = asking(*drafts or ("draft-1",))
        dialog.task_with(response_timeout=0.1, on_response_timeout=choice)
        waiting, kickoff_id = dialog.asked(), dialog.crew.ids[-1]
        if response != 200:
            dialog.crew.faults.answer(response, on="resume")
        if meanwhile:
            time.sleep(0.2)  # beyond the timeout, so that the trigger fires before its next poll
            getattr(dialog.crew, meanwhile)(kickoff_id)
        dialog.crew.at_look(30, lambda: dialog.crew.finish(kickoff_id))
        assert dialog.task.finish(waiting)["kickoff_id"] == kickoff_id
        sent = [(answer["humanFeedback"], answer["isApprove"]) for answer in dialog.answers]
        kept = [(each["user"], each["outcome"]) for each in dialog.kept.get("answers", ())]
        return sent, kept, dialog.crew.required_actions, dialog.kept["at_timeout"]

    timing(people_poll=0.05)
    evaluated("timeouts.txt", timed_out=timed_out)


@pytest.fixture
def late(dialog) -> TaskDeferred:
    """A task that asks, and approves because no user answers in time."""
    dialog.task_with(response_timeout=0.1, on_response_timeout="approve")
    return dialog.asked()


def test_tab_knows_the_limit_after_which_airflow_answers(dialog, late):
    by = dialog.kept["answer_by"]
    for choices in (dialog.crew.xcoms.progress[-1]["choices"], late.trigger.shown["choices"]):
        assert (choices["unanswered"], choices["answer_by"]) == ("Airflow approves the draft", by)

    dialog.task_with(response_timeout=60)
    assert "answer_by" not in dialog.asked().trigger.shown["choices"]


def test_unusable_connection_ends_no_wait_for_an_automatic_answer(dialog, late, monkeypatch):
    event = dialog.task.event_of(late)
    with monkeypatch.context() as broken:
        broken.setenv("AIRFLOW_CONN_CREW_DEFAULT", "crew://nowhere")
        waiting = dialog.resumed(late, event)

    assert dialog.answers == []
    dialog.crew.approve(dialog.crew.kickoffs[0].kickoff_id)
    assert dialog.ended(waiting)["output"] == "The end"


def test_answer_of_a_user_that_was_not_sent_is_not_replaced(dialog, late, monkeypatch):
    with monkeypatch.context() as away:
        away.setenv("AIRFLOW_CONN_CREW_WEBHOOK", "generic://")  # no secret
        waiting = dialog.chosen(late, SEND_BACK, "Never publish this")

    dialog.resumed(waiting, dialog.task.event_of(waiting))

    assert dialog.answers == []


def test_answer_at_the_end_of_an_attempt_is_sent_by_the_next(dialog, late, monkeypatch):
    answer, operator = chosen(SEND_BACK, "Never publish this"), dialog.task.operator()
    dialog.store.breaks_at = lambda name: name == "set" and operator.on_kill()
    with monkeypatch.context() as ending:
        ending.setattr(dialog.task, "operator", lambda: operator)
        with pytest.raises(BaseException, match="ended before the answer"):
            dialog.task.resume(late, answer)
    assert dialog.answers == []
    dialog.store.breaks_at = lambda _: False

    dialog.crew.stored_answer = answer
    waiting = dialog.task.deferred()
    dialog.resumed(waiting, dialog.task.event_of(waiting))

    assert [sent["humanFeedback"] for sent in dialog.answers] == ["Never publish this"]
