"""
What the end of a wait without a result means for its task: a retry, none, a skip.

What is raised is raised from None: a chain of tracebacks would only hide the message.
"""

from typing import NoReturn

from airflow.providers.common.compat import sdk

from airflow_provider_crew.compat import CLEARING, KEEPING
from airflow_provider_crew.service import errors
from airflow_provider_crew.tasks.memory import HOW_TO_GIVE_UP, KickoffMemory
from airflow_provider_crew.tasks.running import RunningTask

# What a later try may well not meet again.
PASSING = (errors.TransientError, errors.LostContact)

_SAME_AGAIN = f"{CLEARING[0].upper()}{CLEARING[1:]} goes on waiting for the same execution."
_RETRY_WAITS_AGAIN = f"A retry of this task, or {CLEARING}, goes on waiting for the same execution."
_GIVE_UP_UNKNOWN = f" The task is not retried. {_SAME_AGAIN} {HOW_TO_GIVE_UP}"
_WAIT_AGAIN = " Clear this task to wait again."
_NEVER_SEEN = " If it may wait for a person: give this task human_input=True, and clear it."
_UNKNOWN = (
    f" Clear this task{KEEPING} to wait again. With human_input=True it waits to the end of timeout. To give the "
    "execution up: on the page of the task instance that kicked it off, under Storage, Task State Store, delete "
    "crew_kickoff, and clear that task, which kicks off anew."
)
_THE_SAME = "the same result again, which costs nothing"
_NO_RETRY_FOR_MISFIT = " The task is not retried, since that would pay for another."
_HOW_TO_WAIT_AGAIN: dict[type[errors.CrewError], str] = {
    errors.WatchBroken: _WAIT_AGAIN,
    errors.ExecutionNotFound: _NEVER_SEEN,
    errors.ExecutionUnknown: _UNKNOWN,
    errors.InvalidOutputType: " Mend this, and clear this task.",
    errors.InvalidOutput: f" Mend output_type, and clear this task: it reads {_THE_SAME}.",
}


class CrewTaskFailed(sdk.AirflowFailException):
    """Ends a task without a retry, because a retry would not help or would cost. ``error`` is what happened."""

    def __init__(self, error: errors.CrewError, advice: str = "") -> None:
        super().__init__(f"{error}{advice}")
        self.error = error


class CutShort(errors.WaitedTooLong):
    """Waiting was ended by execution_timeout, which every task may have."""


def end_run(task: RunningTask, memory: KickoffMemory, error: errors.CrewError) -> NoReturn:
    """Leave a failed crew to the task's retries, and other ends only where a retry starts nothing anew."""
    if isinstance(error, errors.ExecutionFailed):
        memory.note(kickoff_id=task.execution, end="failed")
        raise error from None
    if not memory.lasts:
        raise CrewTaskFailed(error, not_retried(task.execution)) from None
    if isinstance(error, errors.ExecutionUnknown) and error.has_completed:  # there is no more of it to be had
        memory.note(kickoff_id=task.execution, end="completed", delivered=True)
        raise CrewTaskFailed(error, " The task is not retried; clearing it kicks off anew.") from None
    if isinstance(error, errors.ExecutionUnknown):
        raise CrewTaskFailed(error, "" if error.elsewhere else _GIVE_UP_UNKNOWN) from None
    if isinstance(error, CutShort):
        raise sdk.AirflowTaskTimeout(f"{error} {_RETRY_WAITS_AGAIN}") from None
    if isinstance(error, (*PASSING, errors.WaitedTooLong)):
        raise error.advising(f" {_RETRY_WAITS_AGAIN}") from None
    raise CrewTaskFailed(error, f" {_SAME_AGAIN}") from None


def end_misfit(task: RunningTask, memory: KickoffMemory, error: errors.InvalidOutput, *, anew: bool) -> NoReturn:
    """Keep an output that does not fit for a Clear to check again; ``anew``: a retry is to kick off instead."""
    if anew and error.misfits:
        memory.note(kickoff_id=task.execution, end="failed")
        raise error.advising(" It has ended. A retry of this task, or clearing it, kicks off anew.") from None
    if not memory.lasts:
        raise CrewTaskFailed(
            error,
            f'{_NO_RETRY_FOR_MISFIT} Mend output_type. CrewExecutionSensor(kickoff_id="{task.execution}", '
            f"output_type=…) reads {_THE_SAME}; clearing this task kicks off anew.",
        ) from None
    advice = f"{_NO_RETRY_FOR_MISFIT} Mend output_type; {CLEARING} checks {_THE_SAME}."
    raise CrewTaskFailed(error, advice) from None


def end_sensor(error: errors.CrewError, *, soft_fail: bool, never_fail: bool) -> NoReturn:
    """Skip, time out, fail for good or leave it to a retry: alike, however the sensor has waited."""
    passes = isinstance(error, PASSING)
    if never_fail or (soft_fail and not passes):
        raise sdk.AirflowSkipException(str(error)) from None
    if passes:
        raise error from None
    if isinstance(error, CutShort):
        raise sdk.AirflowTaskTimeout(f"{error}{_WAIT_AGAIN}") from None
    if isinstance(error, errors.WaitedTooLong):
        raise sdk.AirflowSensorTimeout(f"{error}{_WAIT_AGAIN}") from None
    has_completed = isinstance(error, errors.ExecutionUnknown) and error.has_completed
    raise CrewTaskFailed(error, "" if has_completed else _HOW_TO_WAIT_AGAIN.get(type(error), "")) from None


def not_retried(kickoff_id: str | None) -> str:
    """Say why there is no retry where tries do not know of each other, and what to do instead."""
    return (
        " The task is not retried, since that would start another. Wait for this one with "
        f'CrewExecutionSensor(kickoff_id="{kickoff_id}").'
    )
