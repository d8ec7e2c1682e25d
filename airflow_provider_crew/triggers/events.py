"""
What a trigger tells the task that waits for it.

Everything is text or a number, and the result is text as well: it passes through Airflow's own encodings, some of
which read a meaning into keys of an object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_crew.service.records import error_record, recorded_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_crew.service.errors import CrewError
    from airflow_provider_crew.service.models import Completed

# What is larger is read from the service by the task, so that it goes through Airflow's database only once.
_LARGEST_RESULT = 64 * 1024


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """How a watch ended: with a result, with an error, or with a result too large to be carried along."""

    kickoff_id: str
    deadline: float
    result: dict[str, Any] | None = None
    error: CrewError | None = None


def completed_event(completed: Completed, deadline: float) -> dict[str, Any]:
    """Tell that the execution has completed."""
    result = json.dumps(completed.result())
    fits = len(result) <= _LARGEST_RESULT
    return {"kickoff_id": completed.kickoff_id, "deadline": deadline, "result": result if fits else ""}


def failed_event(kickoff_id: str, deadline: float, error: CrewError) -> dict[str, Any]:
    """Tell what ended the watch otherwise."""
    return {"kickoff_id": kickoff_id, "deadline": deadline, "error": json.dumps(error_record(error))}


def read_event(event: Mapping[str, Any]) -> WatchEnd:
    """Read either of them."""
    return WatchEnd(
        kickoff_id=event["kickoff_id"],
        deadline=event.get("deadline", 0.0),
        result=json.loads(event["result"]) if event.get("result") else None,
        error=recorded_error(json.loads(event["error"])) if event.get("error") else None,
    )
