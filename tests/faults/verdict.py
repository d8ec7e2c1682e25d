"""Outcome of many executions under random faults: duplicates and lost results."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.executions import Execution
from dev.rest import ApiError
from tests.airflow_runs import Run
from tests.faults.facts import WITHOUT_ID, Failure, failure_in, kickoff_record, logged_at, named_in, record_state

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
    cleared: list[tuple[str, str, float]] = field(default_factory=list)
    marked: Mapping[tuple[str, str], float] = field(default_factory=dict)


def judge(
    crew: LocalCrewService,
    runs: list[Run],
    cleared: list[tuple[str, str, float]],
    marked: Mapping[tuple[str, str], float],
) -> Verdict:
    """
    Compare every execution of these runs at the crew and in Airflow.

    ``cleared``: run, task and time of each clear. ``marked``: time of the first mark as failed, by run and task.
    """
    verdict = Verdict(cleared=cleared, marked=marked)
    started: dict[tuple[str, str], list[Execution]] = defaultdict(list)
    for execution in crew.kickoffs:
        origin: Any = (execution.meta or {}).get("airflow")
        started[origin["run_id"], origin["task_id"]].append(execution)
    verdict.counts["executions"] = len(crew.kickoffs)
    verdict.counts["executions that waited for a person"] = sum(map(_asks, crew.kickoffs))
    for run in runs:
        for task_id, ends_in in RETURNED_BY.items():
            _judge_task(verdict, run, task_id, ends_in, started[run.run_id, task_id])
            _judge_stops(verdict, crew, run, {task_id, ends_in}, started[run.run_id, task_id])
    return verdict


def _judge_stops(
    verdict: Verdict, crew: LocalCrewService, run: Run, tasks: set[str], executions: list[Execution]
) -> None:
    """Only the mark of a task may stop its execution."""
    marks = [at for (run_id, task_id), at in verdict.marked.items() if run_id == run.run_id and task_id in tasks]
    marked_at = min(marks, default=math.inf)
    ids = {execution.kickoff_id for execution in executions}
    for request in crew.requests.on("stop"):
        kickoff_id = request.path.rpartition("/")[2]
        if kickoff_id in ids:
            verdict.counts["requests to stop"] += 1
            if request.received_at < marked_at:
                verdict.faults.append(f"{run.run_id} {tasks}: {kickoff_id} was stopped, and no task was marked")


@dataclass(frozen=True)
class Attempt:
    """Log of one attempt of a task."""

    number: int
    events: list[dict[str, Any]]
    failure: Failure | None

    def names(self, kickoff_id: str, *, before: float = math.inf) -> bool:
        """Whether a line that was written before a moment names an execution."""
        return any(kickoff_id in _text(event) and logged_at(event) < before for event in self.events)


def _judge_task(verdict: Verdict, run: Run, task_id: str, ends_in: str, executions: list[Execution]) -> None:
    last = run.task(ends_in)
    where = f"{run.run_id} {task_id}"
    attempts = _attempts(run, task_id)
    verdict.counts[f"{ends_in}: {last['state']}"] += 1
    verdict.counts["reports of an uncertain kickoff"] += len(_reports(attempts))
    for before, after in pairwise(executions):
        is_wanted = _had_failed(before, after.started_at) or _was_rerun(verdict, run, task_id, before)
        if not (is_wanted or _is_chosen(verdict, run, task_id, attempts, before, after)):
            verdict.faults.append(f"{where}: started twice by accident, {before.kickoff_id}, {after.kickoff_id}")
    returned = _returned(run, ends_in) if last["state"] == "success" else None
    if last["state"] == "success" and not _is_the_result(returned, run, task_id, executions):
        verdict.faults.append(f"{where}: ended well, and has no result of its own: {returned}")
    logs = attempts if ends_in == task_id else attempts + _attempts(run, ends_in)
    record = kickoff_record(run, task_id)
    cancelled = [execution.kickoff_id for execution in executions if execution.standing(math.inf).revoked]
    verdict.counts["cancelled"] += len(cancelled)
    is_marked = bool({(run.run_id, task_id), (run.run_id, ends_in)} & verdict.marked.keys())
    if cancelled and last["state"] == "success" and not is_marked:
        verdict.faults.append(f"{where}: cancelled, and its task succeeded: {cancelled}")
    for execution in executions:
        if execution.kickoff_id in named_in(returned):
            verdict.counts["results in XCom"] += 1
        elif known := _how_it_is_known(task_id, execution, attempts, logs, record, executions):
            verdict.counts[known] += 1
        else:
            verdict.faults.append(f"{where}: {execution.kickoff_id} is named nowhere")


def _how_it_is_known(
    task_id: str,
    execution: Execution,
    attempts: list[Attempt],
    logs: list[Attempt],
    record: Any,
    executions: list[Execution],
) -> str | None:
    """Return how the user learns of an execution whose result was not returned."""
    if any(attempt.names(execution.kickoff_id) for attempt in logs):
        return "named in a log"
    if execution.kickoff_id in named_in(record):
        return "named in a kickoff record"
    is_reported = any(attempt.number >= _started_by(execution) for attempt in _reports(attempts))
    # A task that was killed while it sent the kickoff leaves a record without an ID.
    is_recorded = execution is executions[-1] and record_state(record) in WITHOUT_ID
    was_chosen = execution is not executions[-1] and task_id == ANYWAY
    return "only known to be possible" if is_reported or is_recorded or was_chosen else None


def _attempts(run: Run, task_id: str) -> list[Attempt]:
    found = []
    for number in range(1, max(run.task(task_id)["try_number"], 1) + 1):
        events = run.events(task_id, number)
        found.append(Attempt(number, events, failure_in(events)))
    return found


def _reports(attempts: list[Attempt]) -> list[Attempt]:
    """Return the attempts that failed because a kickoff is uncertain."""
    return [attempt for attempt in attempts if attempt.failure and attempt.failure.is_uncertain]


def _is_chosen(
    verdict: Verdict, run: Run, task_id: str, attempts: list[Attempt], before: Execution, after: Execution
) -> bool:
    """
    Whether a second execution was wanted although the first one may be running.

    The author chose it with on_uncertain_kickoff="retry", and no attempt had got the first kickoff ID until then.
    If the task was cleared, the answer may have reached only the process that the clear ended.
    Or a user chose it: cleared the task after an attempt had reported the kickoff as uncertain and failed without
    a retry.
    """
    if task_id == ANYWAY:
        was_cleared = any((run.run_id, task_id) == (run_id, cleared) for run_id, cleared, _ in verdict.cleared)
        return was_cleared or not any(
            attempt.names(before.kickoff_id, before=after.started_at) for attempt in attempts
        )
    between = range(_started_by(before), _started_by(after) + 1)
    return any(
        attempt.number in between and failure.needs_a_clear and failure.at < after.started_at
        for attempt in _reports(attempts)
        if (failure := attempt.failure)
    )


def _started_by(execution: Execution) -> int:
    origin: Any = (execution.meta or {})["airflow"]
    return int(origin["try_number"])


def _text(event: dict[str, Any]) -> str:
    return "\n".join([event["event"], *(detail["exc_value"] for detail in event.get("error_detail") or ())])


def _asks(execution: Execution) -> bool:
    return any(task.human_input for task in execution.scenario.tasks)


def _had_failed(execution: Execution, at: float) -> bool:
    then = execution.standing(at)
    return then.over and then.error is not None


def _was_rerun(verdict: Verdict, run: Run, task_id: str, execution: Execution) -> bool:
    """
    Whether the task was cleared when Airflow already had the result.

    A running task may end before a busy Airflow clears it.
    """
    stored = _stored_at(run, task_id, execution.kickoff_id)
    return any(
        (run.run_id, task_id) == (run_id, cleared) and stored < at for run_id, cleared, at in verdict.cleared
    )


def _stored_at(run: Run, task_id: str, kickoff_id: str) -> float:
    """Return when Airflow stored the result of an execution, or infinity."""
    for number in range(1, max(run.task(task_id)["try_number"], 1) + 1):
        events = run.events(task_id, number)
        if any(kickoff_id in event["event"] for event in events):
            for event in events:
                if event["event"] == "Pushing xcom":
                    return datetime.fromisoformat(event["timestamp"]).timestamp()
    return math.inf


def _is_the_result(returned: Any, run: Run, task_id: str, executions: list[Execution]) -> bool:
    """Whether the result belongs to one of the task's own executions."""
    return (
        isinstance(returned, dict)
        and returned["kickoff_id"] in {execution.kickoff_id for execution in executions}
        and returned["output"] == f"Briefing: {run.run_id} {task_id}"
    )


def _returned(run: Run, task_id: str) -> Any:
    try:
        return run.xcom(task_id)
    except ApiError:
        return None
