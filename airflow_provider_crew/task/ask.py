"""Users who are asked under Required Actions because their crew waits for human input."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_crew import api_server
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.text import in_words, one_line, quoted
from airflow_provider_crew.client.watch import WatchState
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.task.record import store_of
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.wait import Plan, Wait
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING, WatchEnd, user_in

_SHOWN = 300
# Characters of the crew's last output in a request.
_LONGEST_DRAFT = 2_000
# Choices that a request lists.
_MOST_CHOSEN = 3
# Key in the task state store of the open request, until a process has handled its answer.
REQUEST = "crew_request"


class People:
    """
    Users who answer the crew in its dashboard. A request only shows them that the crew waits.

    :param next_kwargs: Values with which Airflow resumes the task after a deferral. ``None`` if it starts.
    """

    def __init__(self, waiting: Wait, next_kwargs: Mapping[str, Any] | None) -> None:
        self.waiting = waiting
        self.task = waiting.task
        self.store = store_of(self.task.context)
        waiting.chosen = (next_kwargs or {}).get("chosen", [])

    # An attempt calls these, in this order.

    def expect(self, kickoff_id: str | None) -> None:
        """Prepare for questions of an execution to which the attempt has reattached. ``None``: of a new one."""

    def recall(self) -> None:
        """Read what earlier processes have stored about the execution."""

    def plan(self) -> Plan:
        """
        Return the plan of a wait that begins, perhaps with the request that an earlier attempt has left open.

        Airflow keeps the request if the task is retried or cleared, and resumes nothing for an answer meanwhile.
        If Airflow 3.4 has left it to the earlier attempt, the trigger notices.
        """
        store = self.store if self.task.options.deferrable and self.task.ti.try_number > 1 else None
        try:
            match store and store.get(REQUEST):
                case {"kickoff_id": found, "question": str(question)} if found == self.waiting.kickoff_id:
                    return Plan(question=question)
        except Exception as error:  # noqa: BLE001 - the task asks again
            self.task.warn(f"The earlier request under Required Actions is unreadable: {in_words(error)}")
        return Plan()

    def ask(self, event: WatchEnd, plan: Plan) -> Plan:
        """Ask a user under Required Actions to answer the crew in its dashboard."""
        subject = f"The crew waits for human input: {self.task.ti.task_id}"
        body = _text_of_request(self.task, event, self.waiting.chosen)
        return self.open(plan, subject=subject, body=body, options=[HAS_ANSWERED, STOP_WAITING])

    def chose(self, option: str, next_kwargs: Mapping[str, Any]) -> Plan:
        """Continue after a user has chosen an option under Required Actions."""
        task, waiting, user = self.task, self.waiting, user_in(next_kwargs["event"])
        task.log.info("Required Actions: %s chose %r.", user, option)
        line = f"{_code(user)} chose {option!r} at {_time_of(time.time())}."
        waiting.chosen = [*waiting.chosen, line][-_MOST_CHOSEN:]
        plan = Plan(memory=next_kwargs.get("memory"), deadline=next_kwargs.get("deadline"))
        if option == STOP_WAITING:
            self._note_open(None)  # it must not end the next attempt as well
            with suppress(Exception):  # the connection may be unreadable
                last = waiting.poller(waiting.rules(time.time()), WatchState.recalled(plan.memory))
                waiting.output.progress.heard(last.report.as_dict())
            event = f"{user} chose {STOP_WAITING!r} while the crew was waiting for human input."
            raise errors.WaitStopped(event, kickoff_id=waiting.kickoff_id)
        plan = self.answered(option, next_kwargs["event"], plan)
        self._note_open(None)
        return plan

    def answered(self, option: str, event: Mapping[str, Any], plan: Plan) -> Plan:  # noqa: ARG002
        """Continue after a user has answered the crew."""
        return replace(plan, rules={"answered_at": time.time()})

    def ended(self, error: BaseException) -> None:
        """Take note of the error that ends the attempt."""

    # Requests.

    def open(self, plan: Plan, question: str = "", **request: Any) -> Plan:
        """
        Open a request and defer. If there can be no request, return the plan of a wait without one.

        :param question: ID of the crew's question. Empty if the request only shows that the crew waits.
        :param request: Arguments of Airflow's request.
        """
        task, waiting = self.task, self.waiting
        memory = WatchState.recalled(plan.memory) or WatchState(task.started_at)
        rules = waiting.rules(plan.deadline or task.deadline())
        deferral = waiting.deferral(rules, memory.handed_over(), question=question)
        # Open it last, because Airflow resumes nothing for an answer that is given before the deferral.
        self._note_open(question)
        try:
            api_server.open_required_action(task.ti, **request)
        except Exception as error:  # noqa: BLE001 - the wait goes on without a request
            task.warn(f"No request was created under Required Actions: {in_words(error)}")
            self._note_open(None)
            return replace(plan, asks=False)
        raise deferral

    def _note_open(self, question: str | None) -> None:
        """Store the question of the open request. ``None``: a later attempt ignores the answer."""
        try:
            if self.store:
                self.store.set(REQUEST, {"kickoff_id": self.waiting.kickoff_id, "question": question})
        except Exception as error:  # noqa: BLE001 - only an answer before the deferral depends on it
            self.task.warn(f"The record of the request under Required Actions was not stored: {in_words(error)}")


def _text_of_request(task: Task, event: WatchEnd, chosen: Sequence[str]) -> str:
    """
    Log that the crew waits for human input, and return the text of the request, as Markdown.

    :param chosen: Earlier choices of users.
    """
    page, seen, kickoff_id = task.page(event.kickoff_id), event.progress or {}, event.kickoff_id
    waits = f"waits {'again ' if chosen else ''}for human input since {_time_of(seen.get('since'))}"
    place = (event.memory or {}).get("place", "")
    answer = f"Answer at {page}." if page else "Answer in the crew's dashboard."
    # An unknown execution may be past the task at which it was last seen.
    at = ", last seen at" if seen.get("state") == "unknown" else " at"
    task.log.info("The crew %s%s. %s", waits, place and f"{at} {place}", answer)
    text = [
        f"[Answer in the crew's dashboard]({page})" if page else answer,
        f"Execution {kickoff_id} {waits}{place and f'{at} {_code(place)}'}.",
        "Only the crew's dashboard shows what the crew asks about, such as a draft.",
        f"**{HAS_ANSWERED}** polls the execution. It sends no answer to the crew.",
        f"**{STOP_WAITING}** fails this task. The execution keeps running and is billed.",
        "This request opens again if the crew still waits or asks again. The task log lists each choice.",
        *chosen,
    ]
    shows_output = task.options.log_output and is_on("log_output", task.log)
    for each in seen.get("tasks", [])[-1:] if shows_output else ():
        output, name = quoted(each["output"], _LONGEST_DRAFT)[0], _code(each["task_id"])
        text += [
            f"Output of the last finished task at that time: {name}",
            f"```text\n{output}\n```",  # Airflow's page folds a block without a language into one line
        ]
    return "\n\n".join(text)


def _code(text: str) -> str:
    """Return an external text as Markdown that has no effect."""
    return "`{}`".format(one_line(text, _SHOWN).replace("`", "'"))


def _time_of(seconds: float | None) -> str:
    """Return a time for a message."""
    return datetime.fromtimestamp(seconds or time.time(), tz=UTC).strftime("%d %B, %H:%M:%S UTC")
