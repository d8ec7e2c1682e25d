"""The words for an execution: how far it is, and how it ended without a result."""

from airflow_provider_crew.service.errors import ExecutionFailed, ExecutionUnknown
from airflow_provider_crew.service.models import Completed, Failed, Paused, Running
from airflow_provider_crew.service.text import one_line

# What the crew says may be as long as an answer; logs, errors and what is stored may not.
_PROGRESS = 200
_SHOWN_ERROR = 2_000
_KEPT_ERROR = 64 * 1024


def describe_progress(execution: Running | Paused) -> str:
    """Say how far it is: ``task 2 of 3, writing_task (Writer)``, or of a flow ``step 4, write_summary``."""
    said = []
    if (progress := execution.progress) and (step := step_of(execution)):
        said.append(f"{progress.unit} {step if progress.total is None else f'{step} of {progress.total}'}")
    if execution.current_task:
        agent = f" ({execution.current_agent})" if execution.current_agent else ""
        said.append(f"{execution.current_task}{agent}")
    if not (said and execution.is_known):
        said.append(execution.word.lower())
    return one_line(", ".join(said), _PROGRESS)


def step_of(execution: Running | Paused) -> int:
    """Return the number of the task, or step, that it is at; 0 where it does not tell."""
    progress = execution.progress
    if progress is None or progress.total == 0:
        return 0
    return progress.completed + 1 if progress.total is None else min(progress.completed + 1, progress.total)


def passed_unseen(execution: Completed, step: int) -> str:
    """Say which tasks, or steps, have come after the last one that a poll has met, where one has met any."""
    counted = execution.progress.completed if execution.progress else 0
    done = len(execution.tasks) if execution.lists_tasks else counted
    if not 0 < step < done:
        return ""
    unit = execution.progress.unit if execution.progress else "task"
    which = f"{unit} {done}" if step + 1 == done else f"{unit}s {step + 1} to {done}"
    return f"{which} passed between two polls"


def duration(seconds: float) -> str:
    """Say a time as people do: ``4m 10s``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {left}s" if minutes else f"{left}s"


def after(execution: Completed | Failed) -> str:
    """Say how long it took, where the service tells."""
    return f" after {duration(execution.execution_time)}" if execution.execution_time is not None else ""


def execution_failed(execution: Failed) -> ExecutionFailed:
    """Build the error for a crew that failed."""
    return ExecutionFailed(
        f"Execution {execution.kickoff_id} failed{after(execution)}. The crew says: "
        f"{one_line(execution.error, _SHOWN_ERROR).rstrip('. ')}. It has ended and will not go on; only a new "
        "kickoff runs the crew again.",
        kickoff_id=execution.kickoff_id,
        error=execution.error[:_KEPT_ERROR],
        execution_time=execution.execution_time,
        usage=execution.usage,
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
