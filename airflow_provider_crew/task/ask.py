"""Request under Required Actions, which shows that a crew waits for human input."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider_crew import api_server
from airflow_provider_crew.client.text import in_words, one_line, quoted
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.task.record import Store, store_of
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING, WatchEnd

_SHOWN = 300
# Characters of the crew's last output in a request.
_LONGEST_DRAFT = 2_000
# Choices that a request lists.
_MOST_CHOSEN = 3


# Key in the task state store of the open request, until a process has handled its answer.
REQUEST = "crew_request"


@dataclass(frozen=True, kw_only=True)
class Request:
    """
    Request under Required Actions, which the next deferral answers for.

    :param question: ID of the crew's question. Empty if the request only shows that the crew waits.
    :param more: Other arguments of Airflow's request.
    """

    subject: str
    text: str
    options: Sequence[str]
    question: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


def open_request(task: Task, kickoff_id: str, request: Request) -> bool:
    """Open a request, and return whether that worked."""
    left = {"kickoff_id": kickoff_id, "question": request.question}
    _change(task, lambda store: store.set(REQUEST, left))
    try:
        api_server.open_required_action(task.ti, request.subject, request.text, request.options, **request.more)
    except Exception as error:  # noqa: BLE001 - the wait goes on without a request
        task.warn(f"No request was created under Required Actions: {in_words(error)}")
        close_request(task)
        return False
    return True


def close_request(task: Task) -> None:
    """Note that the answer has been handled. A later attempt ignores it."""
    _change(task, lambda store: store.delete(REQUEST))


def request_left(task: Task, kickoff_id: str) -> str | None:
    """
    Return the question of the request that an earlier attempt has left open. None if there is none.

    Airflow keeps the request if the task is retried or cleared, and resumes nothing for an answer meanwhile. If
    Airflow 3.4 has left it to the earlier attempt, the trigger notices.
    """
    store = store_of(task.context) if task.options.deferrable and task.ti.try_number > 1 else None
    try:
        match store and store.get(REQUEST):
            case {"kickoff_id": found, "question": str(question)} if found == kickoff_id:
                return question
    except Exception as error:  # noqa: BLE001 - the task asks again
        task.warn(f"The record of an earlier request under Required Actions is unreadable: {in_words(error)}")
    return None


def _change(task: Task, change: Callable[[Store], None]) -> None:
    if store := store_of(task.context):
        try:
            change(store)
        except Exception as error:  # noqa: BLE001 - only an answer before the deferral depends on it
            task.warn(f"The record of the request under Required Actions was not stored: {in_words(error)}")


def text_of_request(task: Task, event: WatchEnd, chosen: Sequence[str]) -> str:
    """
    Log that the crew waits for human input, and return the text of the request, as Markdown.

    :param chosen: Earlier choices of users.
    """
    page, seen, kickoff_id = task.page(event.kickoff_id), event.progress or {}, event.kickoff_id
    waits = f"waits {'again ' if chosen else ''}for human input since {time_of_day(seen.get('since'))}"
    place = (event.memory or {}).get("place", "")
    answer = f"Answer at {page}." if page else "Answer in the crew's dashboard."
    # An unknown execution may be past the task at which it was last seen.
    at = ", last seen at" if seen.get("state") == "unknown" else " at"
    task.log.info("The crew %s%s. %s", waits, place and f"{at} {place}", answer)
    text = [
        f"[Answer on the crew's page]({page})" if page else answer,
        f"Execution {kickoff_id} {waits}{place and f'{at} {code(place)}'}.",
        "Only the crew's page shows what the crew asks about, such as a draft.",
        f"**{HAS_ANSWERED}** polls the execution. It sends no answer to the crew.",
        f"**{STOP_WAITING}** fails this task. The execution keeps running and is billed.",
        "This request opens again if the crew still waits or asks again. The task log lists each choice.",
        *chosen,
    ]
    shows_output = task.options.log_output and is_on("log_output", task.log)
    for each in seen.get("tasks", [])[-1:] if shows_output else ():
        output, name = quoted(each["output"], _LONGEST_DRAFT)[0], code(each["task_id"])
        text += [
            f"Output of the last finished task at that time: {name}",
            f"```text\n{output}\n```",  # Airflow's page folds a block without a language into one line
        ]
    return "\n\n".join(text)


def note_choice(task: Task, option: str, user: str, chosen: Sequence[str]) -> list[str]:
    """Log the choice of a user, and return the choices for the next request."""
    task.log.info("Required Actions: %s chose %r.", user, option)
    return [*chosen, f"{code(user)} chose {option!r} at {time_of_day(time.time())}."][-_MOST_CHOSEN:]


def code(text: str) -> str:
    """Return an external text as Markdown that has no effect."""
    return "`{}`".format(one_line(text, _SHOWN).replace("`", "'"))


def time_of_day(seconds: float | None) -> str:
    """Return a time for a message."""
    return datetime.fromtimestamp(seconds or time.time(), tz=UTC).strftime("%H:%M:%S UTC")
