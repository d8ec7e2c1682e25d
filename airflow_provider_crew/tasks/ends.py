"""What the end of a wait means for its task: a result, a retry, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from airflow_provider_crew.compat import CLEARING, KEEPING
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionNotFound,
    ExecutionUnknown,
    LostContact,
    TransientError,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.tasks.memory import HOW_TO_GIVE_UP, KickoffMemory

if TYPE_CHECKING:
    from airflow_provider_crew.tasks.running import RunningTask

# What a later try may well not meet again.
PASSING = (TransientError, LostContact)

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


class CrewTaskFailed(AirflowFailException):
    """Ends a task without a retry, because a retry would not help or would cost. ``error`` is what happened."""

    def __init__(self, error: CrewError, advice: str = "") -> None:
        super().__init__(f"{error}{advice}")
        self.error = error


class CutShort(WaitedTooLong):
    """Waiting was ended by execution_timeout, which every task may have."""


class Ends(Protocol):
    """What a task makes of a wait that has brought no result."""

    def give_up(self, error: CrewError) -> NoReturn:
        """
        Raise what makes Airflow do the right thing.

        From None: a chain of tracebacks would only hide the message.
        """


class RunEnds:
    """Leaves a failed crew to the task's retries, and other ends only where a retry starts nothing anew."""

    def __init__(self, task: RunningTask, memory: KickoffMemory) -> None:
        self._task = task
        self._memory = memory

    def give_up(self, error: CrewError) -> NoReturn:
        """Raise what ends the task."""
        memory = self._memory
        if isinstance(error, ExecutionFailed):
            memory.note_end("failed", self._task.execution)
            raise error from None
        if not memory.lasts:
            raise CrewTaskFailed(error, not_retried(self._task.execution)) from None
        if isinstance(error, ExecutionUnknown):
            self._give_up_unknown(error)
        if isinstance(error, CutShort):
            raise AirflowTaskTimeout(f"{error} {_RETRY_WAITS_AGAIN}") from None
        if isinstance(error, (*PASSING, WaitedTooLong)):
            raise error.advising(f" {_RETRY_WAITS_AGAIN}") from None
        raise CrewTaskFailed(error, f" {_SAME_AGAIN}") from None

    def _give_up_unknown(self, error: ExecutionUnknown) -> NoReturn:
        if error.has_completed:  # there is no more of it to be had
            self._memory.note_end("completed", self._task.execution, delivered=True)
            raise CrewTaskFailed(error, " The task is not retried; clearing it kicks off anew.") from None
        raise CrewTaskFailed(error, "" if error.elsewhere else _GIVE_UP_UNKNOWN) from None


class SensorEnds:
    """Skips, times out, fails for good or leaves it to a retry: alike, however the sensor has waited."""

    def __init__(self, *, soft_fail: bool, never_fail: bool) -> None:
        self._soft_fail = soft_fail
        self._never_fail = never_fail

    def give_up(self, error: CrewError) -> NoReturn:
        """Raise what ends the task."""
        passes = isinstance(error, PASSING)
        if self._never_fail or (self._soft_fail and not passes):
            raise AirflowSkipException(str(error)) from None
        if passes:
            raise error from None
        if isinstance(error, WatchBroken):
            raise CrewTaskFailed(error, _WAIT_AGAIN) from None
        if isinstance(error, ExecutionNotFound):
            raise CrewTaskFailed(error, _NEVER_SEEN) from None
        if isinstance(error, ExecutionUnknown) and not error.has_completed:
            raise CrewTaskFailed(error, _UNKNOWN) from None
        if isinstance(error, WaitedTooLong):
            told = f"{error}{_WAIT_AGAIN}"
            timed_out = AirflowTaskTimeout if isinstance(error, CutShort) else AirflowSensorTimeout
            raise timed_out(told) from None
        raise CrewTaskFailed(error) from None


def not_retried(kickoff_id: str | None) -> str:
    """Say why there is no retry where tries do not know of each other, and what to do instead."""
    return (
        " The task is not retried, since that would start another. Wait for this one with "
        f'CrewExecutionSensor(kickoff_id="{kickoff_id}").'
    )
