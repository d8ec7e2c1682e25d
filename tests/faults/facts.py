"""Facts of a task: the failures of its attempts, the cost that they state, and its kickoff record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_crew.client.errors import Cost
from tests.airflow_runs import Run

NOT_RETRIED = "CrewTaskFailed"
# Airflow's answer to a process that it has replaced or is about to kill. It depends on timing.
_OF_A_SUPERSEDED_PROCESS = frozenset({"AirflowRuntimeError"})
# Record states in which a kickoff was sent and no kickoff ID is known.
WITHOUT_ID = frozenset({"uncertain", "reported"})


@dataclass(frozen=True)
class Failure:
    """Exception that ended an attempt, the cost that it states, and when it was logged (0: unknown)."""

    kind: str
    cost: Cost | None
    at: float = 0.0

    @property
    def is_uncertain(self) -> bool:
        """Whether it states that an execution may have started."""
        return self.cost is Cost.UNKNOWN

    @property
    def needs_a_clear(self) -> bool:
        """Whether Airflow does not retry after it, so that a later attempt follows a clear."""
        return self.kind == NOT_RETRIED


def failures_of(run: Run, task_id: str) -> tuple[Failure | None, ...]:
    """Return the failure of each attempt."""
    attempts = range(1, run.task(task_id)["try_number"] + 1)
    return tuple(failure_in(run.events(task_id, number)) for number in attempts)


def failure_in(events: list[dict[str, Any]]) -> Failure | None:
    """Return the failure that the log of an attempt shows last."""
    for event in reversed(events):
        if (detail := event.get("error_detail")) and detail[-1]["exc_type"] not in _OF_A_SUPERSEDED_PROCESS:
            return Failure(detail[-1]["exc_type"], _stated_cost(detail[-1]["exc_value"]), logged_at(event))
    return None


def logged_at(event: dict[str, Any]) -> float:
    """Return when a log line was written. Airflow's own headings have no time."""
    written = event.get("timestamp")
    return datetime.fromisoformat(written).timestamp() if written else 0.0


def _stated_cost(text: str) -> Cost | None:
    return next((money for money in Cost if money.sentence in text), None)


def kickoff_record(run: Run, task_id: str) -> dict[str, Any] | None:
    """Return the kickoff record of a task, or None."""
    return run.stored(task_id).get("crew_kickoff")


def record_state(record: dict[str, Any] | None) -> str:
    """Return a kickoff record in one word."""
    if record is None:
        return "none"
    if record["kickoff_id"] is None:
        return "reported" if record["reported"] else "uncertain"
    return "delivered" if record["delivered"] else record["end"] or "running"


def named_in(value: Any) -> Iterator[str]:
    """Return the kickoff ID that an XCom or a record names, if any."""
    found = value.get("kickoff_id") if isinstance(value, dict) else value
    if found is not None:
        yield str(found)
