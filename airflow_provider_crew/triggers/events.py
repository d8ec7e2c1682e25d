"""
What a trigger tells the task that waits for it.

Everything is text or a number, and the result is text as well: it passes through Airflow's own encodings, some of
which read a meaning into keys of an object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, Json, TypeAdapter, ValidationError

from airflow_provider_crew.service.records import error_record, recorded_error
from airflow_provider_crew.service.watch_state import Polls

if TYPE_CHECKING:
    from airflow_provider_crew.service.errors import CrewError
    from airflow_provider_crew.service.models import Completed
    from airflow_provider_crew.service.watch import Watch

# What is larger is read from the service by the task, so that it goes through Airflow's database only once.
_LARGEST_RESULT = 64 * 1024
# Reading a larger one would hold up every other trigger; the task has a process of its own.
LARGEST_ANSWER = 4 * _LARGEST_RESULT


@dataclass(frozen=True, slots=True)
class _Told:
    """An event as it is stored."""

    kickoff_id: Annotated[str, Field(min_length=1)]
    deadline: float = 0.0
    result: Json[dict[str, Any]] | None = None
    error: Json[dict[str, Any]] | None = None
    completed: bool = False
    seen: bool = False
    polls: int = 0
    failed_polls: int = 0
    pauses: int = 0


_TOLD = TypeAdapter(_Told)


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """
    How a watch ended: with a result, with an error, or with an answer too large to be carried along.

    ``completed``: the execution was seen to have completed. ``seen``: the service has known it.
    """

    kickoff_id: str
    deadline: float
    result: dict[str, Any] | None
    error: CrewError | None
    completed: bool
    seen: bool
    polls: Polls


def completed_event(completed: Completed, deadline: float) -> dict[str, Any]:
    """Tell that the execution has completed."""
    result = json.dumps(completed.result())
    event = unread_event(completed.kickoff_id, deadline) | {"completed": True}
    return event | {"result": result} if len(result) <= _LARGEST_RESULT else event


def unread_event(kickoff_id: str, deadline: float) -> dict[str, Any]:
    """Tell that there is an answer, of whatever kind, that the task is to read itself, and until when to wait."""
    return {"kickoff_id": kickoff_id, "deadline": deadline}


def failed_event(kickoff_id: str, error: CrewError) -> dict[str, Any]:
    """Tell what ended the watch otherwise."""
    return {"kickoff_id": kickoff_id, "error": json.dumps(error_record(error))}


def polls_told(watch: Watch) -> dict[str, Any]:
    """Tell, besides, how often the trigger has polled, and whether the service has known the execution."""
    polls = watch.polls
    counts = {"polls": polls.all, "failed_polls": polls.failed, "pauses": polls.paused}
    return {**counts, "seen": watch.memory.seen}


def read_event(event: Any) -> WatchEnd | None:
    """Read any of them; None when it does not tell which execution ended, or how."""
    try:
        told = _TOLD.validate_python(event)
    except ValidationError:
        return None
    polls = Polls(told.polls, told.failed_polls, told.pauses)
    error = None if told.error is None else recorded_error(told.error)
    return WatchEnd(told.kickoff_id, told.deadline, told.result, error, told.completed, told.seen, polls)
