"""The words of a watch: how far an execution is, and how its watch ended without a result."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from airflow_provider_crew.service.errors import (
    ExecutionFailed,
    ExecutionUnknown,
    LostContact,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.service.text import one_line

if TYPE_CHECKING:
    from airflow_provider_crew.service.errors import CallError, TransientError
    from airflow_provider_crew.service.models import Completed, Failed, Paused, Running
    from airflow_provider_crew.service.watch_state import WatchMemory

# What the crew says may be as long as an answer; logs, errors and what is stored may not.
_PROGRESS = 200
_SHOWN_ERROR = 2_000
_KEPT_ERROR = 64 * 1024

UNKNOWN_MAY_MEAN = "A crew that waits for a person's answer reads like this: it may be alive, and it is paid for."
PAUSED = "the crew is paused: it waits for a person's answer, and is paid for. The wait goes on."


def describe_progress(execution: Running | Paused) -> str:
    """Say how far it is: ``task 2 of 3, writing_task (Writer)``, or of a flow ``step 4, write_summary``."""
    said = [_counted(execution)] if execution.progress else []
    if execution.current_task:
        agent = f" ({execution.current_agent})" if execution.current_agent else ""
        said.append(f"{execution.current_task}{agent}")
    return one_line(", ".join(filter(None, said)) or execution.word.lower(), _PROGRESS)


def _counted(execution: Running | Paused) -> str:
    progress = execution.progress
    if progress is None or progress.total == 0:
        return ""
    if progress.total is None:
        return f"{progress.unit} {progress.completed + 1}"
    return f"{progress.unit} {min(progress.completed + 1, progress.total)} of {progress.total}"


def duration(seconds: float) -> str:
    """Say a time as people do: ``4m 10s``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {left}s" if minutes else f"{left}s"


def ended_well(execution: Completed) -> str:
    """Say that an execution has completed."""
    return f"completed{_after(execution)}"


def execution_failed(execution: Failed) -> ExecutionFailed:
    """Build the error for a crew that failed."""
    return ExecutionFailed(
        f"Execution {execution.kickoff_id} failed{_after(execution)}. The crew says: "
        f"{one_line(execution.error, _SHOWN_ERROR).rstrip('. ')}. It has ended and will not go on; only a new "
        "kickoff runs the crew again.",
        kickoff_id=execution.kickoff_id,
        error=execution.error[:_KEPT_ERROR],
        execution_time=execution.execution_time,
        usage=execution.usage,
    )


def _after(execution: Completed | Failed) -> str:
    return f" after {duration(execution.execution_time)}" if execution.execution_time is not None else ""


def waited_too_long(kickoff_id: str, memory: WatchMemory, now: float) -> WaitedTooLong:
    """Build the error for a deadline that has passed."""
    waited = now - memory.started_at
    last = memory.progress or "nothing yet"
    trouble = f" At the last poll: {memory.trouble}" if memory.trouble else ""
    return WaitedTooLong(
        f"Execution {kickoff_id} was still going when the time to wait was over, after {duration(waited)} of "
        f"watching. Last seen: {last}.{trouble} It cannot be cancelled: it goes on and is paid for. Wait for it "
        "with its kickoff id and more time; do not kick off again.",
        kickoff_id=kickoff_id,
        waited=waited,
        last_seen=memory.progress,
    )


def watch_broken(kickoff_id: str, error: CallError) -> WatchBroken:
    """Build the error for a wait that only a person can mend."""
    return WatchBroken(
        f"Execution {kickoff_id} can no longer be watched. {error} The execution may go on and is paid for. Mend "
        "this, and wait for it again with its kickoff id; do not kick off again.",
        kickoff_id=kickoff_id,
        cause=error,
    )


def lost_contact(kickoff_id: str, memory: WatchMemory, error: TransientError, lasted: float) -> LostContact:
    """Build the error for an outage that lasted too long."""
    last = memory.progress or "nothing"
    failed = (
        " A run that has failed may answer like that for ever: look into the crew's dashboard."
        if error.http_status == HTTPStatus.INTERNAL_SERVER_ERROR
        else ""
    )
    return LostContact(
        f"There was no usable answer about execution {kickoff_id} for {duration(lasted)}. {error}{failed} Last "
        f"seen before: {last}. The execution may go on and is paid for. Wait for it with its kickoff id when the "
        "service is back; do not kick off again.",
        kickoff_id=kickoff_id,
        lasted=lasted,
        cause=error,
    )


def execution_unknown(kickoff_id: str, memory: WatchMemory, lasted: float) -> ExecutionUnknown:
    """Build the error for an execution that the service did not know for too long."""
    last = f" Last seen before: {memory.progress}." if memory.progress else ""
    says = f"has said for {duration(lasted)}" if lasted >= 1 else "says"
    return ExecutionUnknown(
        f"Execution {kickoff_id}: the service {says} that it does not know it.{last} "
        f"{UNKNOWN_MAY_MEAN} Look into the crew's dashboard, and answer what it asks. Do not kick off again "
        "before that.",
        kickoff_id=kickoff_id,
        lasted=lasted,
    )


def result_out_of_reach(kickoff_id: str, lasted: float) -> ExecutionUnknown:
    """Build the error for an execution that was seen to have completed, and that the service does not know now."""
    return ExecutionUnknown(
        f"Execution {kickoff_id} has completed, and the service has said for {duration(lasted)} that it does not "
        "know it, so that its result cannot be read. The crew's dashboard may show it.",
        kickoff_id=kickoff_id,
        lasted=lasted,
        has_completed=True,
    )


def unknown_elsewhere(kickoff_id: str, kicked_off_at: str, asked_at: str) -> ExecutionUnknown:
    """Build the error for an execution that is looked for at another address than that of its kickoff."""
    return ExecutionUnknown(
        f"Execution {kickoff_id} was kicked off at {kicked_off_at}, and is not known at {asked_at}, where the "
        "connection leads now. It may be running there, and is paid for. Let the connection lead there again, "
        "or wait for it with a connection that does; do not kick off again before that.",
        kickoff_id=kickoff_id,
        elsewhere=kicked_off_at,
    )
