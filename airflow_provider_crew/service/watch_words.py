"""The words for an execution: how far it is, and how it ended without a result."""

from airflow_provider_crew.service.errors import Cost, ExecutionFailed, ExecutionUnknown
from airflow_provider_crew.service.models import Completed, Failed, Paused, Running
from airflow_provider_crew.service.text import one_line

# What the crew says may be as long as an answer; logs, errors and what is stored may not.
_PROGRESS = 200
_SHOWN_ERROR = 2_000
_KEPT_ERROR = 64 * 1024


def place(execution: Running | Paused) -> str:
    """Say where it is: ``task 2 of 3, writing_task (Writer)``, or of a flow ``step 4, write_summary``."""
    said = []
    if (progress := execution.progress) and (step := step_of(execution)):
        said.append(f"{progress.unit} {step if progress.total is None else f'{step} of {progress.total}'}")
    if execution.current_task:
        agent = f" ({execution.current_agent})" if execution.current_agent else ""
        said.append(f"{execution.current_task}{agent}")
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


def describe_progress(execution: Running | Paused) -> str:
    """Say where it is, and how it is where that is all that is known, or no known word."""
    where, word = place(execution), execution.word.lower()
    return where if where and execution.is_known else one_line(", ".join(filter(None, (where, word))), _PROGRESS)


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


def execution_failed(failed: Failed, was_at: str) -> ExecutionFailed:
    """Return the error for a crew that failed; ``was_at``: where the last poll before saw it."""
    place = f", last seen at {was_at}" if was_at else ""
    reason = one_line(failed.error, _SHOWN_ERROR).rstrip(". ")
    return ExecutionFailed(
        f"Execution {failed.kickoff_id} failed{after(failed)}{place}: {reason}.",
        next_step="Start a new execution, which is billed again.",
        kickoff_id=failed.kickoff_id,
        error=failed.error[:_KEPT_ERROR],
        execution_time=failed.execution_time,
        usage=failed.usage,
    )


def result_out_of_reach(kickoff_id: str, lasted: float) -> ExecutionUnknown:
    """Return the error for an execution that has completed, and that is unknown now."""
    return ExecutionUnknown(
        f"Execution {kickoff_id} has completed, but its result is unreadable: the crew has answered for "
        f"{duration(lasted)} that the execution is unknown.",
        cost=Cost.ENDED,
        next_step="Check the crew's dashboard, which may show the result.",
        kickoff_id=kickoff_id,
        lasted=lasted,
        has_completed=True,
    )


def unknown_elsewhere(kickoff_id: str, kicked_off_at: str, polled_at: str) -> ExecutionUnknown:
    """Return the error for an execution that is polled at another address than that of its kickoff."""
    return ExecutionUnknown(
        f"Execution {kickoff_id} was started at {kicked_off_at}, and is unknown at {polled_at}, where the "
        "connection points now.",
        next_step="Point the connection to the address of the kickoff before you start another execution.",
        kickoff_id=kickoff_id,
        elsewhere=kicked_off_at,
    )
