"""Attempt whose user answers the crew under Required Actions, and that sends each answer once."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew import versions
from airflow_provider_crew.answers.question import QUESTION, empty_box, question_in, record_in, typed
from airflow_provider_crew.answers.trigger import AnswerTrigger
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import proves_nothing_was_done
from airflow_provider_crew.client.models import Completed, Failed, Running
from airflow_provider_crew.client.payload import answer_to_crew
from airflow_provider_crew.client.text import forms_of, in_words, mask, one_line, quoted
from airflow_provider_crew.client.wording import duration
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.task.ask import Request
from airflow_provider_crew.task.attempt import Attempt
from airflow_provider_crew.task.record import store_of
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.wait import Plan, Wait, may_ask
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING, WatchEnd, user_in

APPROVE = "Approve"
SEND_BACK = "Send back"
ANSWER = "Answer"
_AT_TIMEOUT = {
    "leave": "this request closes",
    "approve": "Airflow approves the draft",
    "send_back": "Airflow sends the draft back once, which is billed",
}
# The trigger closes a request with HAS_ANSWERED, so Airflow has to have offered it.
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
# Parameter of a request with the ID of its question. Airflow answers whichever request is open, so a page that
# still shows an earlier draft would otherwise approve a later one.
ASKED = "question"
# Key in the task state store of the last question, its answers, and the ID under which the execution continues.
KEY = "crew_answer"
_LONGEST_SHOWN = 20 * 1024
_LONGEST_TITLE = 60
_LONGEST_REASON = 300
# Answers that the Crew tab shows.
_MOST_ANSWERS = 5
_WIDTH = 78


class AnsweringWait(Wait):
    """Wait of a task with ``answer_in_airflow``, for both IDs of the execution."""

    trigger_class = AnswerTrigger
    hindrance = ""
    """Why the task only shows that its crew waits."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.known: dict[str, Any] = {}
        """The last question, its answer, and the ID under which the execution continues."""

    @property
    def question(self) -> str:
        """ID of the last question."""
        return str((self.known.get("question") or {}).get("task_id", ""))

    def trigger_options(self) -> dict[str, Any]:
        """Return the question that the trigger need not report."""
        question = None if self.hindrance else self.question
        return {"known_question": question, "answer_by": self.known.get("answer_by")}


class AnsweringAttempt(Attempt):
    """
    Attempt of a task with ``answer_in_airflow``.

    A question is over when a poll has found the execution at work since its request was opened or answered.
    """

    wait_class = AnsweringWait
    waiting: AnsweringWait

    def __init__(self, task: Task, *, next_kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__(task, next_kwargs=next_kwargs)
        self._store = store_of(task.context)
        self._opened = (self.next_kwargs or {}).get("question")
        secret_id, url = (conf.get("crew", name, fallback="") for name in ("webhook_conn_id", "events_url"))
        self.waiting.hindrance = self._found_hindrance(secret_id, url)
        if self.waiting.hindrance:
            if self.next_kwargs is None:
                task.warn(f"The crew cannot be answered from Airflow: {self.waiting.hindrance}.")
            return
        kickoff: Any = {**task.options.kickoff, "human_input_webhook_url": url}
        if isinstance(meta := kickoff.get("meta"), Mapping):  # anything else is rejected before the kickoff
            kickoff["meta"] = {**meta, "airflow": task.origin()}
        task.options = replace(task.options, kickoff=kickoff, webhook_conn_id=secret_id)

    def _found_hindrance(self, secret_id: str, url: str) -> str:
        """Return why the task only shows that its crew waits. Empty if there is no reason."""
        own = self.task.options.webhook_conn_id
        hindrances = {
            "it needs Airflow 3.3": not versions.HAS_REQUIRED_ACTIONS or self._store is None,
            "the task is not deferrable": not self.task.options.deferrable,
            "[crew] events_url is not set": not url,
            "[crew] webhook_conn_id is not set": not secret_id,
            "the task's webhook_conn_id differs from [crew] webhook_conn_id": own not in {None, secret_id},
            "[crew] required_actions is False": not may_ask(self.task),
        }
        return next((reason for reason, applies in hindrances.items() if applies), "")

    # Before the wait.

    def kick_off(self) -> str:
        """Open the XCom for questions, and send the kickoff."""
        self._open_box(self.task.ti.try_number)
        return super().kick_off()

    def reattach(self) -> str | None:
        """Reattach, and open the XCom again, which Airflow has deleted."""
        if kickoff_id := super().reattach():
            self._open_box(self.record.last.try_number if self.record.last else 0)
            self._recall_answer(kickoff_id)
        return kickoff_id

    def resume(self) -> str | None:
        """Resume after a deferral."""
        if kickoff_id := super().resume():
            self._recall_answer(kickoff_id)
        return kickoff_id

    def _open_box(self, try_number: int) -> None:
        if not self.waiting.hindrance:
            self.output.push(QUESTION, empty_box(try_number), what="The place for the crew's questions")

    def _recall_answer(self, kickoff_id: str) -> None:
        """Read what earlier processes know of the question. If that is unreadable, no answer may be sent."""
        if self.waiting.hindrance:
            return
        try:
            self.waiting.known = record_in(self._store and self._store.get(KEY), kickoff_id)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            self.waiting.hindrance = f"the record of its question is unreadable: {in_words(error)}"
            self.task.warn(f"The crew cannot be answered from Airflow: {self.waiting.hindrance}.")
            return
        self.waiting.continued_as = self.waiting.known.get("continued_as", "")
        if self.waiting.known.get("outcome") == "sending":
            self._note_uncertain("The process that sent it ended before the response.")

    # The question.

    def ask(self, event: WatchEnd) -> Plan:
        """Ask a user the crew's question. Without one, only show that the crew waits."""
        known: dict[str, Any] = {"memory": event.memory, "deadline": event.deadline}
        if self.waiting.hindrance:
            return super().ask(event)
        if self._is_asked_anew():
            return self._open(known)
        if not self.waiting.question:
            self._cannot_show("no webhook has arrived, and a flow sends none")
            return super().ask(event)
        if self.waiting.known.get("is_over") or (event.memory or {}).get("works"):
            # The text of the earlier request may still be on Airflow's page, so no request is opened.
            self._keep(is_over=True)
            self._cannot_show("the crew waits again, but its webhook has not arrived")
            return Plan(asks=False, **known)
        answer_by = self.waiting.known.get("answer_by")
        is_late = self._opened == self.waiting.question and answer_by and time.time() >= answer_by
        return self._time_out(known) if is_late else self._open(known)

    def _is_asked_anew(self) -> bool:
        """Whether the crew has asked another question than the known one. It replaces that one."""
        ti = self.task.ti
        question = question_in(ti.xcom_pull(task_ids=ti.task_id, key=QUESTION, map_indexes=ti.map_index))
        if not question or question["task_id"] == self.waiting.question:
            return False
        question["draft"] = mask(question["draft"], forms_of(self.task.hook.connection.settings.token))
        limit = self.task.options.response_timeout
        answer_by = limit and time.time() + limit
        number = self.waiting.known.get("number", 0) + 1
        fresh: dict[str, Any] = {"answer": "", "outcome": "", "is_over": False, "has_user": False}
        self._keep(question=question, number=number, answer_by=answer_by, **fresh)
        for notifier in self.task.options.notifiers:
            try:
                notifier(self.task.context)
            except Exception as error:  # noqa: BLE001 - the question matters more
                self.task.warn(f"A notifier failed: {in_words(error)}")
        return True

    def _cannot_show(self, why: str) -> None:
        self.task.warn(f"The question cannot be shown in Airflow: {why}. Answer in the crew's dashboard.")

    def _open(self, known: dict[str, Any]) -> Plan:
        """Open the request for the known question, and wait."""
        question, users = self.waiting.known["question"], self.task.options.assigned_users
        self.task.log.info("The crew asks a question. Answer it in the Crew tab or under Required Actions.")
        # Airflow's page keeps its form, with the ID of the earlier question, until the subject changes.
        number = f" {self.waiting.known['number']}" if self.waiting.known.get("number", 1) > 1 else ""
        # Airflow's page hides a constant, and returns it. Below the last field, its empty line is not seen.
        asked = {"value": question["task_id"], "description": "", "schema": {"const": question["task_id"]}}
        request = Request(
            subject=f"Draft{number}{_title_of(question['draft'])} ({self.task.ti.task_id})",
            text=self._text_of(question),
            options=_OPTIONS,
            question=question["task_id"],
            more={"params": {TEXT: _FORM, ASKED: asked}, "assigned_users": [dict(user) for user in users]},
        )
        return Plan(request=request, **_idle(known))

    def _text_of(self, question: Mapping[str, str]) -> str:
        page = self.task.page(self.kickoff_id)
        answer_by = self.waiting.known.get("answer_by")
        until = answer_by and datetime.fromtimestamp(answer_by, UTC).strftime("%d %B, %H:%M UTC")
        text = [
            f"Execution {self.kickoff_id} waits for human input. The crew wrote:",
            f"```text\n{quoted(_wrapped(question['draft']), _LONGEST_SHOWN)[0]}\n```",
            f"**{APPROVE}** releases the draft. Leave the text empty.",
            f"**{SEND_BACK}** makes the crew do the task again, with your text if you give one. This is billed.",
            f"**{ANSWER}** gives your text to a crew that has asked a question.",
            f"**{HAS_ANSWERED}** polls the execution, if you have answered in the crew's dashboard.",
            f"**{STOP_WAITING}** fails this task. The execution keeps running and is billed.",
            f"Without an answer by {until}, {_AT_TIMEOUT[self._choice_at_timeout()]}." if until else "",
            # Airflow 3.3 keeps this text until the next question.
            "If this request opens again with the same draft, the Crew tab shows what became of the answer.",
            f"[The crew's page]({page})" if page else "",
            *self.waiting.kept.get("chosen", []),
        ]
        return "\n\n".join(filter(None, text))

    # The answer.

    def answered(self, option: str, next_kwargs: Mapping[str, Any], known: dict[str, Any]) -> Plan:
        """Send the user's answer to the crew, and continue to wait. Ask again if nothing was sent."""
        event = next_kwargs["event"]
        self.waiting.known["has_user"] = True  # no automatic answer may replace that of a user
        if option == HAS_ANSWERED:
            self._keep()
            return super().answered(option, next_kwargs, known)
        # The request of an earlier attempt stays open if the task is cleared. It shows the question in the record.
        question = next_kwargs.get("question") or self.waiting.question
        given = event.get("params_input") or {}
        text = typed(given.get(TEXT))
        if self.waiting.hindrance or not question or question != self.waiting.question:
            self.task.warn("The answer was not sent, because there is no readable record of its question.")
            return super().answered(option, next_kwargs, known)
        at = event.get("responded_at")  # a text, if the trigger has read the answer
        at = at.isoformat() if isinstance(at, datetime) else str(at)
        self._note_answer(option, at, user_in(event))
        if given.get(ASKED) not in (None, question):
            sent = self._not_sent("It was given to an earlier question. Read the current one.")
        elif (text and option == APPROVE) or (option == ANSWER and not text):
            sent = self._not_sent(f"{option!r} {'takes no text' if text else 'needs a text'}.")
        else:
            text = text or (_APPROVAL if option == APPROVE else _AGAIN)
            sent = self._send_answer(option, text, at)
        if sent:
            return Plan(rules={"answered_at": time.time()}, **_idle(known))
        # If the next question has just come, Airflow would keep the text of a request that opens for this one.
        self._is_asked_anew()
        return self._open(known)

    def _time_out(self, known: dict[str, Any]) -> Plan:
        """Answer once if no user has answered in time, or answer nothing, and continue to wait."""
        self.task.warn(f"No user has answered within {duration(self.task.options.response_timeout or 0)}.")
        if (choice := self._choice_at_timeout()) != "leave":
            if self._has_continued(known):
                return Plan(**known)
            self.waiting.known["sent_back"] = choice == "send_back"
            option, text = (SEND_BACK, _TIMEOUT) if choice == "send_back" else (APPROVE, _APPROVAL)
            self._note_answer(option, datetime.fromtimestamp(time.time(), UTC).isoformat())
            if self._send_answer(option, text, f"response_timeout {self.waiting.question}"):
                return Plan(rules={"answered_at": time.time()}, **_idle(known))
        if self._opened != self.waiting.question:
            return self._open(known)
        return Plan(asks=False, **known)

    def _has_continued(self, known: dict[str, Any]) -> bool:
        """Whether the crew was waiting, and is running again or has ended. The last poll may be a minute old."""
        with suppress(errors.CallError, errors.InvalidSettings):
            now, was_waiting = self.status(self.kickoff_id), bool((known["memory"] or {}).get("troubles"))
            return isinstance(now, Completed | Failed) or (isinstance(now, Running) and was_waiting)
        return False

    def _choice_at_timeout(self) -> str:
        """Return which of on_response_timeout applies to the known question."""
        known, choice = self.waiting.known, self.task.options.on_response_timeout
        has_answer = known.get("outcome") or known.get("has_user")
        return "leave" if has_answer or (choice == "send_back" and known.get("sent_back")) else choice

    def _answer(self, option: str, text: str) -> bytes:
        """Return the answer to the known question. Raise a CrewError if it cannot be sent."""
        self.task.hook.connection.require_address(self.record.last.address if self.record.last else "")
        return answer_to_crew(
            self.kickoff_id,
            self.waiting.question,
            text,
            is_approved=option != SEND_BACK,
            options=self.task.options.kickoff,
            webhook_secret=load_secret(str(self.task.options.webhook_conn_id)),
        )

    def _send_answer(self, option: str, text: str, answer: str) -> bool:
        """
        Send the answer once. Return whether it may have reached the crew.

        :param answer: Time of the user's response. If a process has recorded the intent, nothing is sent again.
        """
        if self.waiting.known.get("answer") == answer:
            self.task.log.info("An earlier process has sent this answer.")
            return True
        try:
            crew, given = self.task.hook.get_conn(), self._answer(option, text)
        except errors.CrewError as error:
            return self._not_sent(error.event)
        why = "" if self._note_outcome("sending", answer=answer) else "Airflow did not store the intent."
        if self._is_asked_anew():
            why = "The crew has asked another question since."
        if why:
            return self._not_sent(why)
        try:
            self.stop.look_before("answer")
            continued_as = crew.answer(self.kickoff_id, given)
        except errors.CallError as error:
            if proves_nothing_was_done(error):
                return self._not_sent(error.event, "rejected")
            self._note_uncertain(error.event)
            return True
        except errors.CrewError as error:
            self._not_sent(error.event)
            raise
        self.waiting.continued_as = continued_as or self.waiting.continued_as
        self._note_outcome("sent", continued_as=self.waiting.continued_as)
        self.task.log.info("Sent the answer. Only the next polls show whether the crew continues.")
        return True

    def _note_answer(self, option: str, at: str, user: str = "") -> None:
        """Add an answer to those that the Crew tab shows. Without a user, Airflow answers after the timeout."""
        answers = self.waiting.known.get("answers", [])
        if at not in {each.get("at") for each in answers}:  # an earlier process may have noted it
            about = {"option": option, "user": one_line(user, _LONGEST_TITLE), "at": at}
            answers = [*answers, {**about, "outcome": "", "why": ""}]
        self.waiting.known["answers"] = answers[-_MOST_ANSWERS:]

    def _note_outcome(self, outcome: str, why: str = "", **changes: Any) -> bool:
        """Record what became of the last answer. Return whether Airflow has stored it."""
        *earlier, last = self.waiting.known.get("answers") or [{}]
        last = {**last, "outcome": outcome or "not_sent", "why": one_line(why, _LONGEST_REASON)}
        return self._keep(outcome=outcome, answers=[*earlier, last], **changes)

    def _not_sent(self, why: str, outcome: str = "") -> bool:
        self._note_outcome(outcome, why, answer="")
        self.task.warn(f"The answer had no effect. {why}")
        return False

    def _note_uncertain(self, why: str) -> None:
        self._note_outcome("uncertain", why)
        self.task.warn(f"An answer may have reached the crew, and is not sent again. {why} Polling continues.")

    def _keep(self, **changes: Any) -> bool:
        """Change the record of the question. Return whether Airflow has stored it."""
        self.waiting.known = {**self.waiting.known, "kickoff_id": self.kickoff_id, **changes}
        self.waiting.known["at_timeout"] = _AT_TIMEOUT[self._choice_at_timeout()]
        try:
            if self._store and not self.waiting.hindrance:  # known is empty if the record was unreadable
                self._store.set(KEY, self.waiting.known)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            self.task.warn(f"The record of the crew's question was not stored: {error}")
            return False
        return True

    def end(self, error: BaseException) -> BaseException:
        """End the attempt. The next one polls no continuation that has failed."""
        if isinstance(error, errors.ExecutionUnknown) and self.waiting.known.get("continued_as"):
            self._keep(continued_as="")
        return super().end(error)


def _title_of(draft: str) -> str:
    """Return the first line of a draft that has a word, without the marks of Markdown."""
    title = next(filter(None, (line.strip("#*>-_ \t") for line in draft.splitlines())), "")
    return title and f": {one_line(title, _LONGEST_TITLE)}"


def _wrapped(draft: str) -> str:
    """Return a draft in lines as wide as Airflow's page, which otherwise cuts them."""
    lines = (wrap(line, _WIDTH, replace_whitespace=False, break_on_hyphens=False) for line in draft.splitlines())
    return "\n".join("\n".join(line) for line in lines)


def _idle(known: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the watch from which on a poll that finds the execution at work ends the question."""
    memory = known.get("memory")
    return {**known, "memory": memory and {**memory, "works": False}}
