"""Users who answer the crew under Required Actions, and whose answers are sent once each."""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.answers.question import ASKED, QUESTION, Outcome, Question, empty_box, typed
from airflow_provider_crew.answers.trigger import AnswerTrigger
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.api import proves_nothing_was_done
from airflow_provider_crew.client.models import Completed, Failed, Running
from airflow_provider_crew.client.payload import answer_to_crew
from airflow_provider_crew.client.text import in_words, mask, maskable, one_line, quoted
from airflow_provider_crew.client.wording import duration
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.task.ask import People
from airflow_provider_crew.task.attempt import Attempt
from airflow_provider_crew.task.wait import Plan, Wait, may_ask
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING, WatchEnd, user_in

APPROVE = "Approve"
SEND_BACK = "Send back"
ANSWER = "Answer"
_AT_TIMEOUT = {
    "leave": "this request closes",
    "approve": "Airflow approves the draft",
    "send_back": "Airflow sends the draft back once (billed)",
}
_OPTIONS = (APPROVE, SEND_BACK, ANSWER, HAS_ANSWERED, STOP_WAITING)
# A deployment that ignores isApprove takes any longer text for a reason to do the task again.
_APPROVAL = "Approved."
_AGAIN = "Do the task again."
_TIMEOUT = f"No person has answered in time. {_AGAIN}"
TEXT = "text"
_FORM = {
    "value": None,
    "description": "Your text for the crew. Approve takes none, and Answer needs one.",
    "schema": {"type": ["string", "null"], "format": "multiline", "title": "Text for the crew"},
}
# Key of the Question in the task state store.
KEY = "crew_answer"
_LONGEST_SHOWN = 20 * 1024
_LONGEST_TITLE = 60
_LONGEST_REASON = 300
_WIDTH = 78


class AnsweringPeople(People):
    """
    Users who answer the crew under Required Actions, and whose answers are sent once each.

    A question is over when a poll has found the execution at work since its request was opened or answered.
    """

    def __init__(self, waiting: Wait, next_kwargs: Mapping[str, Any] | None) -> None:
        super().__init__(waiting, next_kwargs)
        self.question = Question()
        self._opened: str | None = (next_kwargs or {}).get("question")
        secret_id, url = (conf.get("crew", name, fallback="") for name in ("webhook_conn_id", "events_url"))
        hindrance = self._found_hindrance(secret_id, url)
        self._can_answer = not hindrance
        if hindrance:
            if next_kwargs is None:
                self.task.warn(f"The crew cannot be answered from Airflow: {hindrance}.")
            options = self.task.options
            if not any(options.kickoff.get(name) for name in ("webhooks", "human_input_webhook_url")):
                given = {**options.given, "webhook_conn_id": None}
                self.task.options = replace(options, webhook_conn_id=None, given=given)  # nothing else uses it
            return
        kickoff: Any = {**self.task.options.kickoff, "human_input_webhook_url": url}
        if isinstance(meta := kickoff.get("meta"), Mapping):  # anything else is rejected before the kickoff
            kickoff["meta"] = {**meta, "airflow": self.task.origin()}
        self.task.options = replace(self.task.options, kickoff=kickoff, webhook_conn_id=secret_id)
        waiting.new_trigger = self._new_trigger
        waiting.unanswered = self._unanswered

    def _found_hindrance(self, secret_id: str, url: str) -> str:
        """Return why the task only shows that its crew waits. Empty if there is no reason."""
        own, sent = self.task.options.webhook_conn_id, self.task.options.kickoff
        hindrances = {
            "it needs Airflow 3.3": self.store is None,
            "the task is not deferrable": not self.task.options.deferrable,
            "[crew] events_url is not set": not url,
            "[crew] webhook_conn_id is not set": not secret_id,
            "the task's webhook_conn_id differs from [crew] webhook_conn_id": own not in {None, secret_id},
            # The secret would reach the address of the author's webhooks as well.
            "the task has webhooks, but no webhook_conn_id": not own and bool(sent.get("webhooks")),
            "[crew] required_actions is False": not may_ask(self.task),
        }
        return next((reason for reason, applies in hindrances.items() if applies), "")

    def _new_trigger(self, *args: Any, rules: Mapping[str, Any], **kwargs: Any) -> AnswerTrigger:
        """Return a trigger that need not report the last question. It leaves time for the first."""
        asked = self.question.task_id if self._can_answer else None
        if asked == "":
            rules = {**rules, "stops_after": timing.QUESTION_WAIT}
        then = "" if self._choice_at_timeout() == "leave" else f". If the crew still waits, {self._at_timeout()}"
        kwargs["shown"]["closed"] = {"late": f"No answer in time{then}"}
        answer_by = self.question.answer_by
        return AnswerTrigger(*args, rules=rules, known_question=asked, answer_by=answer_by, **kwargs)

    # Before the wait.

    def expect(self, kickoff_id: str | None) -> None:
        """Open the XCom for questions, which Airflow deletes when an attempt starts."""
        earlier = self.waiting.record.last if kickoff_id else None
        if kickoff_id:
            self.recall()
        if self._can_answer:
            number, conn_id = (earlier or self.task.ti).try_number, self.task.options.crew_conn_id
            box = empty_box(number, conn_id, self.question.known)
            self.waiting.output.push(QUESTION, box, what="The place for the crew's questions")

    def recall(self) -> None:
        """Read the question as earlier processes have stored it. If it is unreadable, no answer may be sent."""
        try:
            if self.store and self._can_answer:
                self.question = Question.stored(self.store.get(KEY), self.waiting.kickoff_id)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            self._can_answer = False
            why = f"the record of its question is unreadable: {in_words(error)}"
            self.task.warn(f"The crew cannot be answered from Airflow: {why}.")
        self.waiting.continued_as = self.question.continued_as
        if self.question.outcome == "sending":
            self._not_sent("The process that sent it ended before the response.", "uncertain")

    def ended(self, error: BaseException) -> None:
        """Forget a continuation that has failed, so that the next attempt does not poll it."""
        if isinstance(error, errors.ExecutionUnknown) and self.question.continued_as:
            self.question.continued_as = ""
            self._save()

    # The question.

    def ask(self, event: WatchEnd, plan: Plan) -> Plan:
        """Ask a user the crew's question. Without one, only show that the crew waits."""
        if not self._can_answer:
            return super().ask(event, plan)
        if self._is_asked_anew():
            return self._open(plan)
        if not self.question.task_id:
            self._cannot_show("no webhook has arrived, and a flow sends none")
            return super().ask(event, plan)
        if self.question.is_over or (plan.memory or {}).get("works"):
            # The text of the earlier request may still be on Airflow's page, so no request is opened.
            self.question.is_over = True
            self._save()
            self._cannot_show("the crew waits again, but its webhook has not arrived")
            return replace(plan, asks=False)
        answer_by = self.question.answer_by
        is_late = self._opened == self.question.task_id and answer_by and time.time() >= answer_by
        return self._time_out(plan) if is_late else self._open(plan)

    def _is_asked_anew(self) -> bool:
        """Whether the crew has asked another question than the last one. It replaces that one."""
        ti, limit, question = self.task.ti, self.task.options.response_timeout, self.question
        asked = Question.delivered(ti.xcom_pull(task_ids=ti.task_id, key=QUESTION, map_indexes=ti.map_index))
        if not asked or asked.task_id == question.task_id:
            return False
        question.draft = mask(asked.draft, maskable(self.task.hook.connection.settings.token))
        question.task_id, question.number, question.known = asked.task_id, question.number + 1, asked.known
        question.answer_by = limit and time.time() + limit
        question.outcome, question.is_over, question.has_user = "", False, False
        self._save()
        for notifier in self.task.options.notifiers:
            try:
                notifier(self.task.context)
            except Exception as error:  # noqa: BLE001 - the question matters more
                self.task.warn(f"A notifier failed: {in_words(error)}")
        return True

    def _cannot_show(self, why: str) -> None:
        self.task.warn(f"The question cannot be shown in Airflow: {why}. Answer in the crew's dashboard.")

    def _open(self, plan: Plan) -> Plan:
        """Open the request for the last question, and wait."""
        question = self.question
        if question.answer_by and question.answer_by > (plan.deadline or math.inf):  # the task ends before
            question.answer_by = None
            self._save()
        self.task.log.info("The crew asks a question. Answer it in the Crew tab or under Required Actions.")
        # Airflow's page keeps its form, with the ID of the earlier question, until the subject changes.
        number = f" {question.number}" if question.number > 1 else ""
        # Airflow's page hides a constant, and returns it. Below the last field, its empty line is not seen.
        asked = {"value": question.task_id, "description": "", "schema": {"const": question.task_id}}
        subject = f"Draft{number}{_title_of(question.draft)} ({self.task.ti.task_id})"
        params = {TEXT: _FORM, ASKED: asked}
        shown = {"subject": subject, "body": self._text(), "options": _OPTIONS, "params": params}
        return self.open(_idle(plan), question.task_id, **shown)

    def open(self, plan: Plan, question: str = "", **request: Any) -> Plan:
        """Open a request for the users who may answer."""
        users = [dict(user) for user in self.task.options.assigned_users]
        return super().open(plan, question, assigned_users=users, **request)

    def _text(self) -> str:
        kickoff_id, answer_by = self.waiting.kickoff_id, self.question.answer_by
        page = self.task.page(kickoff_id)
        until = answer_by and datetime.fromtimestamp(answer_by, UTC).strftime("%d %B, %H:%M UTC")
        text = [
            f"Execution {kickoff_id} waits for human input. The crew wrote:",
            f"```text\n{quoted(_wrapped(self.question.draft), _LONGEST_SHOWN)[0]}\n```",
            f"**{APPROVE}** releases the draft. Leave the text empty.",
            f"**{SEND_BACK}** makes the crew do the task again, with your text if you give one. This is billed.",
            f"**{ANSWER}** gives your text to a crew that has asked a question.",
            f"**{HAS_ANSWERED}** polls the execution, if you have answered in the crew's dashboard.",
            f"**{STOP_WAITING}** fails this task. The execution keeps running and is billed.",
            f"Without an answer by {until}, {self._at_timeout()}." if until else "",
            # Airflow 3.3 keeps this text until the next question.
            "If this request opens again with the same draft, the Crew tab shows what became of the answer.",
            f"[The crew's dashboard]({page})" if page else "",
            *self.waiting.chosen,
        ]
        return "\n\n".join(filter(None, text))

    # The answer.

    def answered(self, option: str, event: Mapping[str, Any], plan: Plan) -> Plan:
        """Send the user's answer to the crew, and continue to wait. Ask again if nothing was sent."""
        self.question.has_user = True
        if option == HAS_ANSWERED:
            self._save()
            return super().answered(option, event, plan)
        # The request of an earlier attempt stays open if the task is cleared. It shows the question in the record.
        if not self.question.task_id or self._opened not in {None, "", self.question.task_id}:
            self.task.warn("The answer was not sent, because there is no readable record of its question.")
            return super().answered(option, event, plan)
        given = event.get("params_input") or {}
        text = typed(given.get(TEXT))
        at = event.get("responded_at")  # a text, if the trigger has read the answer
        at = at.isoformat() if isinstance(at, datetime) else str(at)
        self.question.note_answer(option, one_line(user_in(event), _LONGEST_TITLE), at)
        if given.get(ASKED) not in (None, self.question.task_id):
            sent = self._not_sent("It was given to an earlier question. Read the current one.")
        elif (text and option == APPROVE) or (option == ANSWER and not text):
            sent = self._not_sent(f"{option!r} {'takes no text' if text else 'needs a text'}.")
        else:
            sent = self._send(option, text or (_APPROVAL if option == APPROVE else _AGAIN), at)
        if sent:
            return super().answered(option, event, _idle(plan))
        # If the next question has just come, Airflow would keep the text of a request that opens for this one.
        self._is_asked_anew()
        return self._open(plan)

    def _time_out(self, plan: Plan) -> Plan:
        """Answer once if no user has answered in time, or answer nothing, and continue to wait."""
        self.task.warn(f"No user has answered within {duration(self.task.options.response_timeout or 0)}.")
        if (choice := self._choice_at_timeout()) != "leave":
            if self._has_continued(plan):
                return plan
            self.question.sent_back = choice == "send_back"
            option, text = (SEND_BACK, _TIMEOUT) if choice == "send_back" else (APPROVE, _APPROVAL)
            at = datetime.fromtimestamp(time.time(), UTC).isoformat()
            self.question.note_answer(option, "", at)
            if self._send(option, text, at):
                return super().answered(option, {}, _idle(plan))
        return replace(plan, asks=False) if self._opened == self.question.task_id else self._open(plan)

    def _choice_at_timeout(self) -> str:
        """Return which of on_response_timeout applies to the last question."""
        question, choice = self.question, self.task.options.on_response_timeout
        has_answer = question.outcome or question.has_user
        return "leave" if has_answer or (choice == "send_back" and question.sent_back) else choice

    def _at_timeout(self) -> str:
        return _AT_TIMEOUT[self._choice_at_timeout()]

    def _unanswered(self) -> dict[str, Any]:
        """Return what Airflow does after ``response_timeout``, which is before the timeout of the task."""
        if not self.task.options.response_timeout or self._choice_at_timeout() == "leave":
            return {}
        by = self.question.answer_by
        return {"unanswered": self._at_timeout(), "answer_by": by} if by else {"unanswered": ""}

    def _has_continued(self, plan: Plan) -> bool:
        """Whether the crew was waiting, and is running again or has ended. The last poll may be a minute old."""
        with suppress(errors.CallError, errors.InvalidSettings):
            now, was_waiting = self.waiting.status(self.waiting.kickoff_id), (plan.memory or {}).get("troubles")
            return isinstance(now, Completed | Failed) or (isinstance(now, Running) and bool(was_waiting))
        return False

    def _send(self, option: str, text: str, at: str) -> bool:
        """Send the noted answer, unless the crew may have it. Return whether it may have reached the crew."""
        question, waiting, options = self.question, self.waiting, self.task.options
        if any(it.at == at and it.outcome not in {"", "not_sent", "rejected"} for it in question.answers):
            self.task.log.info("An earlier process has sent this answer.")
            return True
        try:
            crew = self.task.hook.get_conn()
            self.task.hook.connection.require_address(waiting.record.last.address if waiting.record.last else "")
            secret, ids = load_secret(str(options.webhook_conn_id)), (waiting.kickoff_id, question.task_id)
            answer = answer_to_crew(
                *ids, text, is_approved=option != SEND_BACK, options=options.kickoff, webhook_secret=secret
            )
        except errors.CrewError as error:
            return self._not_sent(error.event)
        if not self._save("sending"):
            return self._not_sent("Airflow did not store the intent.")
        if self._is_asked_anew():
            return self._not_sent("The crew has asked another question since.")
        try:
            waiting.stop.look_before("answer")
            continued_as = crew.answer(waiting.kickoff_id, answer)
        except errors.CallError as error:
            return self._not_sent(error.event, "rejected" if proves_nothing_was_done(error) else "uncertain")
        except errors.CrewError as error:
            self._not_sent(error.event)
            raise
        waiting.continued_as = question.continued_as = continued_as or waiting.continued_as
        self._save("sent")
        self.task.log.info("Sent the answer. Only the next polls show whether the crew continues.")
        return True

    # The record.

    def _not_sent(self, why: str, outcome: Outcome = "") -> bool:
        """Store and log why the last answer had no effect, or may have had none. Return whether it may."""
        self._save(outcome, why)
        is_uncertain = outcome == "uncertain"
        may = "An answer may have reached the crew, and is not sent again."
        self.task.warn(f"{may} {why} Polling continues." if is_uncertain else f"The answer had no effect. {why}")
        return is_uncertain

    def _save(self, outcome: Outcome | None = None, why: str = "") -> bool:
        """Store the question, perhaps with the outcome of its last answer. Return whether that worked."""
        if outcome is not None:
            self.question.outcome = outcome
            for last in self.question.answers[-1:]:
                last.outcome, last.why = outcome or "not_sent", one_line(why, _LONGEST_REASON)
                last.stored_at = time.time()
        shown = {"kickoff_id": self.waiting.kickoff_id, "at_timeout": self._at_timeout()}
        try:
            if self.store and self._can_answer:  # an unreadable record is not replaced
                self.store.set(KEY, asdict(self.question) | shown)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            self.task.warn(f"The record of the crew's question was not stored: {error}")
            return False
        return True


class AnsweringAttempt(Attempt):
    """Attempt of a task with ``answer_in_airflow``."""

    people_class = AnsweringPeople


def _title_of(draft: str) -> str:
    """Return the first line of a draft that has a word, without the marks of Markdown."""
    title = next(filter(None, (line.strip("#*>-_ \t") for line in draft.splitlines())), "")
    return title and f": {one_line(title, _LONGEST_TITLE)}"


def _wrapped(draft: str) -> str:
    """Return a draft in lines as wide as Airflow's page, which otherwise cuts them."""
    lines = (wrap(line, _WIDTH, replace_whitespace=False, break_on_hyphens=False) for line in draft.splitlines())
    return "\n".join("\n".join(line) for line in lines)


def _idle(plan: Plan) -> Plan:
    """Return the plan with which a poll that finds the execution at work ends the question."""
    return replace(plan, memory=plan.memory and {**plan.memory, "works": False})
