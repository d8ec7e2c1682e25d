"""
What a trigger tells the task that waits for it.

Everything is text or a number, and the result is text as well: it passes through Airflow's own encodings, some of
which read a meaning into keys of an object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_crew.service.records import error_record, recorded_error
from airflow_provider_crew.service.storable import storable_text
from airflow_provider_crew.service.watch_state import Polls, is_time

if TYPE_CHECKING:
    from airflow_provider_crew.service.errors import CrewError
    from airflow_provider_crew.service.models import Completed

# What is larger is read from the service by the task, so that it goes through Airflow's database only once.
_LARGEST_RESULT = 64 * 1024
# No watch looks as often.
_MOST_LOOKS = 1_000_000_000
# Reading a larger one would hold up every other trigger; the task has a process of its own.
LARGEST_ANSWER = 4 * _LARGEST_RESULT


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """
    How a watch ended: with a result, with an error, or with an answer too large to be carried along.

    ``completed``: the execution was seen to have completed. ``seen``: the service has known it.
    """

    kickoff_id: str
    deadline: float
    result: dict[str, Any] | None = None
    error: CrewError | None = None
    completed: bool = False
    seen: bool = False
    looks: Polls = field(default_factory=Polls)


def completed_event(completed: Completed, deadline: float) -> dict[str, Any]:
    """Tell that the execution has completed."""
    result = json.dumps(completed.result())
    event = unread_event(completed.kickoff_id, deadline) | {"completed": True}
    return event | {"result": result} if len(result) <= _LARGEST_RESULT else event


def unread_event(kickoff_id: str, deadline: float) -> dict[str, Any]:
    """Tell that there is an answer, of whatever kind, that the task is to read itself."""
    return {"kickoff_id": kickoff_id, "deadline": deadline, "result": ""}


def failed_event(kickoff_id: str, deadline: float, error: CrewError) -> dict[str, Any]:
    """Tell what ended the watch otherwise."""
    return {"kickoff_id": kickoff_id, "deadline": deadline, "error": json.dumps(error_record(error))}


def looks_told(looks: Polls, *, seen: bool) -> dict[str, int | bool]:
    """Tell, besides, how often the trigger has looked, and whether the service has known the execution."""
    return {"looks": looks.all, "failed_looks": looks.failed, "pauses": looks.paused, "seen": seen}


def read_event(event: Any) -> WatchEnd | None:
    """
    Read either of them; None when it does not tell which execution ended, or how.

    A result that cannot be read is left out, since the service still has it.
    """
    told: Mapping[str, Any] = event if isinstance(event, Mapping) else {}
    kickoff_id, deadline, error = told.get("kickoff_id"), told.get("deadline"), told.get("error")
    record, result = _object(error), _object(told.get("result"))
    if not (kickoff_id and isinstance(kickoff_id, str)) or (error and record is None):
        return None
    return WatchEnd(
        kickoff_id=storable_text(kickoff_id),
        deadline=deadline if is_time(deadline) else 0.0,
        result=result if result and {"output", "output_json"} <= result.keys() else None,
        error=None if record is None else recorded_error(record),
        completed=told.get("completed") is True,
        seen=told.get("seen") is True,
        looks=Polls(*(_count(told.get(name)) for name in ("looks", "failed_looks", "pauses"))),
    )


def _count(told: Any) -> int:
    return told if isinstance(told, int) and 0 <= told <= _MOST_LOOKS else 0


def _object(text: Any) -> dict[str, Any] | None:
    try:
        read = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None
