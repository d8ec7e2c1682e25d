"""Request under Required Actions, which shows that a crew waits for human input."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_crew import api_server
from airflow_provider_crew.client.text import one_line, quoted
from airflow_provider_crew.task.result import may_log_output
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING, WatchEnd

_SHOWN = 300
# Characters of the crew's last output in a request.
_LONGEST_DRAFT = 2_000
# Choices that a request lists.
_MOST_CHOSEN = 3


def open_request(task: Task, text: str, options: Sequence[str], **more: Any) -> None:
    """Open a request, which the next deferral answers for."""
    subject = f"The crew waits for human input: {task.ti.task_id}"
    api_server.open_required_action(task.ti, subject, text, options, **more)


def text_of_request(task: Task, event: WatchEnd, chosen: Sequence[str]) -> str:
    """
    Log that the crew waits for human input, and return the text of the request, as Markdown.

    :param chosen: Earlier choices of users.
    """
    page, seen, kickoff_id = task.page(event.kickoff_id), event.progress or {}, event.kickoff_id
    waits = "still waits, or waits again," if chosen else "waits"
    place = (event.memory or {}).get("place", "")
    when = f"{'seen at' if chosen else 'since'} {time_of_day(seen.get('polled_at'))}"
    answer = f"Answer at {page}." if page else "Answer in the crew's dashboard."
    # An unknown execution may be past the task at which it was last seen.
    at = ", last seen at" if seen.get("state") == "unknown" else " at"
    task.log.info("The crew %s for human input %s%s. %s", waits, when, place and f"{at} {place}", answer)
    text = [
        f"[Answer on the crew's page]({page})" if page else answer,
        f"Execution {kickoff_id} {waits} for human input {when}{place and f'{at} {code(place)}'}.",
        "Only the crew's page shows what the crew asks about, such as a draft.",
        f"**{HAS_ANSWERED}** polls the execution. It sends no answer to the crew.",
        f"**{STOP_WAITING}** fails this task. The execution keeps running and is billed.",
        "This request opens again if the crew still waits or asks again. The task log lists each choice.",
        *chosen,
    ]
    shows_output = may_log_output(task.options.log_output, task.log)
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
