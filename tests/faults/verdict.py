"""Outcome of many executions under random faults: duplicates and lost results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
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
    "run_anyway": "run_anyway",
    "kickoff_1": "sensor_deferred",
    "kickoff_2": "sensor_reschedule",
}
# The task with on_uncertain_kickoff="retry".
ANYWAY = "run_anyway"


@dataclass
class Verdict:
    """Counts, and descriptions of outcomes that must not occur."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def judge(chaos: Chaos) -> Verdict:
    """Compare every execution at the crew and in Airflow."""
    verdict = Verdict()
    for run in chaos.runs:
        for task_id, ends_in in RETURNED_BY.items():
            task = _Task(chaos, run, task_id, ends_in)
            verdict.faults += [f"{run.run_id} {task_id}: {fault}" for fault in task.faults()]
            verdict.counts.update([f"{ends_in}: {task.state}", *task.known.values()])
    return verdict


@dataclass(frozen=True)
class _Attempt:
    """Log of one attempt of a task."""

    number: int
    events: list[dict[str, Any]]
    failure: Failure | None

    def names(self, kickoff_id: str, *, before: float = math.inf) -> bool:
        """Whether a line that was written before a moment names an execution."""
        return any(kickoff_id in _text(event) and logged_at(event) < before for event in self.events)


class _Task:
    """A task that kicks off, its executions, and what Airflow shows of them."""

    def __init__(self, chaos: Chaos, run: Run, task_id: str, ends_in: str) -> None:
        self.task_id = task_id
        self.topic = f"{run.run_id} {task_id}"
        self.executions = [
            each
            for each in chaos.crew.kickoffs
            if _origin(each).items() >= {("run_id", run.run_id), ("task_id", task_id)}
        ]
        self.stops = {request.path.rpartition("/")[2]: request for request in chaos.crew.requests.on("stop")}
        self.cleared = [at for *key, at in chaos.cleared if key == [run.run_id, task_id]]
        of_both = {(run.run_id, task_id), (run.run_id, ends_in)}
        self.marked_at = min((at for key, at in chaos.marked.items() if key in of_both), default=math.inf)
        self.attempts = _attempts(run, task_id)
        self.logs = self.attempts if ends_in == task_id else self.attempts + _attempts(run, ends_in)
        self.state = run.task(ends_in)["state"]
        self.returned: Any = None
        if self.state == "success":
            with suppress(ApiError):
                self.returned = run.xcom(ends_in)
        self.record = kickoff_record(run, task_id)
        self.reports = [attempt for attempt in self.attempts if attempt.failure and attempt.failure.is_uncertain]
        self.known = {it.kickoff_id: how for it in self.executions if (how := self._how_it_is_known(it))}

    def faults(self) -> Iterator[str]:
        """Yield what must not have happened."""
        for before, after in pairwise(self.executions):
            is_wanted = has_failed(before, after.started_at) or self._was_rerun(before)
            if not (is_wanted or self._is_chosen(before, after)):
                yield f"started twice by accident, {before.kickoff_id}, {after.kickoff_id}"
        for execution in self.executions:
            kickoff_id = execution.kickoff_id
            if kickoff_id not in self.known:
                yield f"{kickoff_id} is named nowhere"
            if kickoff_id in self.stops and self.stops[kickoff_id].received_at < self.marked_at:
                yield f"{kickoff_id} was stopped, and no task was marked"
        if self.state == "success" and not self._has_own_result():
            yield f"ended well, and has no result of its own: {self.returned}"

    def _has_own_result(self) -> bool:
        return (
            isinstance(self.returned, dict)
            and self.returned["kickoff_id"] in {execution.kickoff_id for execution in self.executions}
            and self.returned["output"] == f"Briefing: {self.topic}"
        )

    def _how_it_is_known(self, execution: Execution) -> str | None:
        """Return how the user learns of an execution."""
        if execution.kickoff_id in named_in(self.returned):
            return "results in XCom"
        if any(attempt.names(execution.kickoff_id) for attempt in self.logs):
            return "named in a log"
        if execution.kickoff_id in named_in(self.record):
            return "named in a kickoff record"
        is_reported = any(attempt.number >= _origin(execution)["try_number"] for attempt in self.reports)
        # A task that was killed while it sent the kickoff leaves a record without an ID.
        is_last = execution is self.executions[-1]
        is_recorded = record_state(self.record) in WITHOUT_ID if is_last else self.task_id == ANYWAY
        return "only known to be possible" if is_reported or is_recorded else None

    def _is_chosen(self, before: Execution, after: Execution) -> bool:
        """
        Whether a second execution was wanted although the first one may be running.

        The author chose it with on_uncertain_kickoff="retry", and no attempt had got the first kickoff ID until
        then. If the task was cleared, the answer may have reached only the process that the clear ended.
        Or a user chose it: cleared the task after an attempt had reported the kickoff as uncertain and failed
        without a retry.
        """
        if self.task_id == ANYWAY:
            names = (attempt.names(before.kickoff_id, before=after.started_at) for attempt in self.attempts)
            return bool(self.cleared) or not any(names)
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
