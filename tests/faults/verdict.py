"""Outcome of many executions under random faults: duplicates and lost results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airflow_provider_crew.local.executions import Execution
from dev.rest import ApiError
from tests.airflow_runs import Run
from tests.faults.chaos import Chaos
from tests.faults.facts import WITHOUT_ID, Failure, failure_in, kickoff_record, logged_at, named_in, record_state
from tests.integration.batches import has_failed

# The tasks that kick off, with the task that returns the result of each.
RETURNED_BY = {
    "run_deferred": "run_deferred",
    "run_sync": "run_sync",
    "kickoff_1": "sensor_deferred",
    "kickoff_2": "sensor_reschedule",
}


def judge(chaos: Chaos) -> tuple[list[str], Counter[str]]:
    """Compare every execution at the crew and in Airflow. Return what must not have occurred, and the states."""
    tasks = [_Task(chaos, run, *ids) for run in chaos.runs for ids in RETURNED_BY.items()]
    faults = [f"{task.topic}: {fault}" for task in tasks for fault in task.faults()]
    return faults, Counter(task.state for task in tasks)


@dataclass(frozen=True)
class _Attempt:
    """Log of one attempt of a task."""

    number: int
    events: list[dict[str, Any]]
    failure: Failure | None

    def names(self, kickoff_id: str) -> bool:
        """Whether a line names an execution."""
        return any(kickoff_id in _text(event) for event in self.events)


class _Task:
    """A task that kicks off, its executions, and what Airflow shows of them."""

    def __init__(self, chaos: Chaos, run: Run, task_id: str, ends_in: str) -> None:
        self.ends_in = ends_in
        self.topic = f"{run.run_id} {task_id}"
        self.executions = [
            each
            for each in chaos.crew.kickoffs
            if _origin(each).items() >= {("run_id", run.run_id), ("task_id", task_id)}
        ]
        self.stopped = {request.path.rpartition("/")[2] for request in chaos.crew.requests.on("stop")}
        self.cleared = [at for *key, at in chaos.cleared if key == [run.run_id, task_id]]
        self.attempts = _attempts(run, task_id)
        self.logs = self.attempts if ends_in == task_id else self.attempts + _attempts(run, ends_in)
        self.state = run.task(ends_in)["state"]
        self.returned: Any = None
        if self.state == "success":
            with suppress(ApiError):
                self.returned = run.xcom(ends_in)
        self.record = kickoff_record(run, task_id)
        self.reports = [attempt for attempt in self.attempts if attempt.failure and attempt.failure.is_uncertain]

    def faults(self) -> Iterator[str]:
        """Yield what must not have happened."""
        for before, after in pairwise(self.executions):
            is_wanted = has_failed(before, after.started_at) or self._was_rerun(before)
            if not (is_wanted or self._is_chosen(before, after)):
                yield f"started twice by accident, {before.kickoff_id}, {after.kickoff_id}"
        for execution in self.executions:
            kickoff_id = execution.kickoff_id
            if not self._is_known(execution):
                yield f"{kickoff_id} is named nowhere"
            if kickoff_id in self.stopped:
                yield f"{kickoff_id} was stopped, and no task was marked"
        if self.state == "success" and not self._has_own_result():
            yield f"ended well, and has no result of its own: {self.returned}"

    def _has_own_result(self) -> bool:
        return (
            isinstance(self.returned, dict)
            and self.returned["kickoff_id"] in {execution.kickoff_id for execution in self.executions}
            and self.returned["output"] == f"Briefing: {self.topic}"
        )

    def _is_known(self, execution: Execution) -> bool:
        """Whether the user learns of an execution, or that it may exist."""
        kickoff_id = execution.kickoff_id
        is_named = kickoff_id in {*named_in(self.returned), *named_in(self.record)}
        is_reported = any(attempt.number >= _origin(execution)["try_number"] for attempt in self.reports)
        # A task that was killed while it sent the kickoff leaves a record without an ID.
        is_recorded = execution is self.executions[-1] and record_state(self.record) in WITHOUT_ID
        return is_named or is_reported or is_recorded or any(each.names(kickoff_id) for each in self.logs)

    def _is_chosen(self, before: Execution, after: Execution) -> bool:
        """
        Whether a user wanted a second execution although the first one may be running.

        The user cleared the task after an attempt had reported the kickoff as uncertain, and was not retried.
        """
        between = range(_origin(before)["try_number"], _origin(after)["try_number"] + 1)
        return any(
            attempt.number in between and failure.needs_a_clear and failure.at < after.started_at
            for attempt in self.reports
            if (failure := attempt.failure)
        )

    def _was_rerun(self, execution: Execution) -> bool:
        """
        Whether the task was cleared when Airflow already had the result.

        A running task may end before a busy Airflow clears it.
        """
        stored = (
            logged_at(event)
            for attempt in self.attempts
            if attempt.names(execution.kickoff_id)
            for event in attempt.events
            if event["event"] == "Pushing xcom"
        )
        stored_at = next(stored, math.inf)
        return any(stored_at < at for at in self.cleared)


def _attempts(run: Run, task_id: str) -> list[_Attempt]:
    numbers = range(1, max(run.task(task_id)["try_number"], 1) + 1)
    logs = ((number, run.events(task_id, number)) for number in numbers)
    return [_Attempt(number, events, failure_in(events)) for number, events in logs]


def _origin(execution: Execution) -> dict[str, Any]:
    return dict((execution.meta or {})["airflow"])  # type: ignore[arg-type]


def _text(event: dict[str, Any]) -> str:
    return "\n".join([event["event"], *(detail["exc_value"] for detail in event.get("error_detail") or ())])
