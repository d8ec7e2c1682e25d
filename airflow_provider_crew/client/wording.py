"""Sentences about an execution, for logs and errors."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.models import Completed, Failed
from airflow_provider_crew.client.text import one_line

# Text from the crew may be as long as a response. Logs, errors and stored data are limited.
SHOWN_TEXT = 2_000
_KEPT_ERROR = 64 * 1024
_MOST_TASKS_LOGGED = 100
_NAME = 60
# Names of exception classes before a reason. They follow it, because pages cut long lines.
_CLASSES = re.compile(
    r"\A(?:\w+\.){0,9}(\w*(?:Error|Exception))(?:: | - )(?:[\w.]*(?:Error|Exception)(?:: | - ))*(\S.*)"
)


def duration(seconds: float) -> str:
    """Format seconds for a message: ``4m 10s``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {left}s" if minutes else f"{left}s"


def after(execution: Completed | Failed) -> str:
    """Return the run time for a message, if the crew reports it."""
    return f" after {duration(execution.execution_time)}" if execution.execution_time is not None else ""


def after_cancelling(end: errors.CrewError, outcome: Completed | Failed | Exception) -> errors.CrewError:
    """Return the error that ends a task whose execution it has cancelled, or tried to."""
    if isinstance(outcome, errors.NotCancelled):
        return end.replace(f"{end.event} {outcome.event}", cost=outcome.cost)
    if isinstance(outcome, Exception):
        why = str(getattr(outcome, "event", outcome)).rstrip(".")
        return end.replace(f"{end.event} The request to cancel it was not sent: {why}.")
    event = f"{end.event} {describe_end(outcome)}"
    if isinstance(outcome, Failed):
        return _failure(
            errors.ExecutionCancelled if outcome.was_stopped else errors.ExecutionFailed, event, outcome, end.at
        )
    return end.replace(event, cost=errors.Cost.ENDED)


def describe_end(execution: Completed | Failed) -> str:
    """Return a sentence about an execution that a cancellation has found ended."""
    if isinstance(execution, Completed):
        return "The execution completed before it could be cancelled."
    if execution.was_stopped:
        return "The execution was cancelled."
    return f"The execution has ended: {one_line(execution.error, SHOWN_TEXT).rstrip('. ')}."


def execution_failed(failed: Failed, was_at: str) -> errors.ExecutionFailed:
    """Return the error for a crew that failed or was stopped. ``was_at``: its position at the last poll before."""
    lines = failed.error.strip().splitlines()
    # The last line of a traceback is the reason.
    is_traceback = len(lines) > 1 and lines[0].startswith("Traceback (")
    last = _CLASSES.sub(r"\2 (\1)", lines[-1]) if lines else ""
    text = f"{last}. {failed.error}" if is_traceback else last if len(lines) == 1 else failed.error
    reason = one_line(text, SHOWN_TEXT)
    if failed.was_stopped:
        return _failure(errors.ExecutionStopped, f"The execution was stopped: {reason}", failed, was_at)
    return _failure(errors.ExecutionFailed, reason, failed, was_at)


def _failure(kind: type[errors.ExecutionFailed], event: str, failed: Failed, at: str) -> errors.ExecutionFailed:
    """Return an error with the facts of a failed execution that its class has."""
    at = ", ".join(filter(None, (at, after(failed).strip())))
    facts = {name: getattr(failed, name) for name in kind.names if name in Failed.model_fields}
    return kind(event, **facts | {"error": failed.error[:_KEPT_ERROR], "at": at})


def result_out_of_reach(kickoff_id: str, lasted: float) -> errors.ExecutionUnknown:
    """Return the error for an execution that has completed, but is unknown now."""
    return errors.ExecutionUnknown(
        "The execution has completed, but its result is unreadable: the crew has reported for "
        f"{duration(lasted)} that the execution is unknown.",
        cost=errors.Cost.ENDED,
        kickoff_id=kickoff_id,
        lasted=lasted,
        has_completed=True,
    )


def unknown_elsewhere(kickoff_id: str, kicked_off_at: str, polled_at: str) -> errors.ExecutionUnknown:
    """Return the error for an execution that was polled at a different address than that of its kickoff."""
    return errors.ExecutionUnknown(
        f"The execution was started at {kicked_off_at}, but is unknown at {polled_at}, where the connection "
        "points now.",
        kickoff_id=kickoff_id,
        elsewhere=kicked_off_at,
    )


def run_times(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the run time of each task, if reported. Tasks are numbered if their list is complete."""
    tasks = result["tasks"]
    for number, task in enumerate(tasks[:_MOST_TASKS_LOGGED], start=1):
        if (took := task["execution_time"]) is not None:
            which = f"task {number} of {len(tasks)}, " if result["tasks_complete"] else "task "
            agent = f" ({one_line(task['agent'], _NAME)})" if task["agent"] else ""
            yield f"{which}{one_line(task['task_id'], _NAME)}{agent}, took {duration(took)}"
    if left := len(tasks[_MOST_TASKS_LOGGED:]):
        yield f"{left} more tasks"


def in_all(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the total run time and tokens, as far as the crew reports them. The XCom ``usage`` has all counts."""
    took, tokens = result["execution_time"], (result["usage"] or {}).get("total_tokens")
    parts = [] if took is None else [duration(took)]
    parts += [] if tokens is None else [f"{tokens:,} tokens"]
    if parts:
        yield f"total: {', '.join(parts)}"
