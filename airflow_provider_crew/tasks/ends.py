"""
What the end of a task without what it was to return means: a retry, none, a skip; and how it is told.

What is raised is raised from None: a chain of tracebacks would only hide the message.
"""

import logging
from typing import Any, NoReturn, TypeVar

from airflow.providers.common.compat import sdk

from airflow_provider_crew.service import errors
from airflow_provider_crew.service.messages import Money
from airflow_provider_crew.tasks import messages
from airflow_provider_crew.tasks.memory import KickoffMemory
from airflow_provider_crew.tasks.messages import End
from airflow_provider_crew.tasks.running import RunningTask

E = TypeVar("E", bound=errors.CrewError)

# What a later try may well not meet again.
PASSING = (errors.TransientError, errors.LostContact)

# What each end means for a sensor that is not retried.
_SENSOR_ENDS: dict[type[errors.CrewError], End] = {
    errors.ExecutionFailed: messages.SENSOR_FAILED,
    errors.ExecutionUnknown: messages.SENSOR_UNKNOWN,
    errors.ExecutionNotFound: messages.SENSOR_NEVER_SAW_IT,
    errors.InvalidOutput: messages.SENSOR_MISFIT,
    errors.InvalidOutputType: messages.SENSOR_NEVER_POLLED,
    errors.WatchBroken: messages.SENSOR_IS_OVER,
}


class EndedTask(BaseException):
    """What an exception of Airflow's own knows of a crew's end: the same as a CrewError, which is ``failure``."""

    def __init__(self, failure: errors.CrewError) -> None:
        super().__init__(str(failure))
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep what it knows on its way to another process."""
        return type(self), (self.failure,)

    @property
    def kickoff_id(self) -> str:
        """The execution that it is about, if there is one."""
        return self.failure.kickoff_id

    @property
    def money(self) -> Money:
        """What is known of an execution that is paid for."""
        return self.failure.money

    @property
    def error(self) -> str:
        """What went wrong, in the crew's own words where it has said so."""
        return self.failure.error

    @property
    def more(self) -> str:
        """The details below the three lines."""
        return self.failure.more

    def told(self) -> dict[str, str]:
        """Return the three lines that are said first."""
        return self.failure.told()


class CrewTaskFailed(EndedTask, sdk.AirflowFailException):
    """Ends a task without a retry, because a retry would not help or would cost."""


class CrewTaskError(EndedTask, sdk.AirflowException):
    """Leaves a task to its retries, about Airflow rather than about the crew."""


class CrewTaskTimeout(EndedTask, sdk.AirflowTaskTimeout):
    """Ends a task whose execution_timeout is over."""


class CrewSensorTimeout(EndedTask, sdk.AirflowSensorTimeout):
    """Ends a sensor whose time to wait is over."""


class CrewTaskSkipped(EndedTask, sdk.AirflowSkipException):
    """Skips a sensor instead of failing it."""


class OtherInputs(errors.WatchError):
    """An execution of an earlier attempt may be running, and its inputs belong to another row of a mapped task."""


class CutShort(errors.WaitedTooLong):
    """Waiting was ended by execution_timeout, which every task may have."""


def give_up(task: RunningTask, end: errors.CrewError | EndedTask) -> NoReturn:
    """Tell the end of a task in the log, the most important first, and raise it."""
    failure = end.failure if isinstance(end, EndedTask) else end
    if task.execution:
        task.progress.ended(task.execution, failure)
    tell(task, failure, logging.WARNING if isinstance(end, CrewTaskSkipped) else logging.ERROR)
    raise end from None


def tell(task: RunningTask, failure: errors.CrewError, level: int = logging.ERROR) -> None:
    """Tell in lines that fit a screen what happened, what is known of the money, and what is next."""
    for line in failure.lines():
        task.log.log(level, "%s", line)


def meaning(failure: E, end: End, **words: object) -> E:
    """Return the failure with what its end means for the task."""
    said = {"mend": failure.next, **words}
    following, also = (text.format_map(said).strip() for text in (end.next, end.also))
    if len(following) > errors.NEXT:  # what to mend is told in the details
        following, also = end.next.format_map(said | {"mend": ""}).strip(), f"{failure.next}\n{also}".strip()
    return failure.but(next=following or failure.next, also=also, money=end.money or failure.money)


def end_run(task: RunningTask, memory: KickoffMemory, error: errors.CrewError) -> NoReturn:
    """Leave a failed crew to the task's retries, and other ends only where a retry starts nothing anew."""
    if isinstance(error, errors.ExecutionFailed):
        # Said, too, if the task is told to end before Airflow has taken note.
        task.has_ended, task.waits_again = True, messages.FAILED.next
        memory.note(kickoff_id=task.execution, end="failed")
        give_up(task, meaning(error, messages.FAILED))
    if isinstance(error, errors.ExecutionUnknown) and error.has_completed:  # there is no more of it to be had
        memory.note(kickoff_id=task.execution, end="completed", delivered=True)
        give_up(task, CrewTaskFailed(meaning(error, messages.OUT_OF_REACH)))
    if not memory.lasts:
        give_up(task, CrewTaskFailed(meaning(error, messages.NOT_RETRIED, id=task.execution)))
    if isinstance(error, errors.ExecutionUnknown):
        give_up(task, CrewTaskFailed(error if error.elsewhere else meaning(error, messages.UNKNOWN)))
    again = messages.RETRY_READS if task.has_ended else messages.RETRY_GOES_ON
    if isinstance(error, CutShort):
        give_up(task, CrewTaskTimeout(meaning(error, again)))
    if isinstance(error, (*PASSING, errors.WaitedTooLong)):
        give_up(task, meaning(error, again))
    give_up(task, CrewTaskFailed(meaning(error, messages.CLEARING_GOES_ON)))


def end_misfit(task: RunningTask, memory: KickoffMemory, error: errors.InvalidOutput, *, anew: bool) -> NoReturn:
    """Keep an output that does not fit for a Clear to check again; ``anew``: a retry is to kick off instead."""
    if anew and error.misfits:
        task.waits_again = messages.FAILED.next
        memory.note(kickoff_id=task.execution, end="failed")
        give_up(task, meaning(error, messages.FAILED))
    end = messages.MISFIT_IS_KEPT if memory.lasts else messages.MISFIT_IS_FORGOTTEN
    give_up(task, CrewTaskFailed(meaning(error, end, id=task.execution)))


def end_sensor(task: RunningTask, error: errors.CrewError, *, soft_fail: bool, never_fail: bool) -> NoReturn:
    """Skip, time out, fail for good or leave it to a retry: alike, however the sensor has waited."""
    passes = isinstance(error, PASSING)
    if never_fail or (soft_fail and not passes):
        why = "never_fail" if never_fail else "soft_fail"
        give_up(task, CrewTaskSkipped(meaning(error, messages.SKIPPED, why=why)))
    if passes:
        give_up(task, meaning(error, messages.SENSOR_RETRIES))
    if isinstance(error, CutShort):
        give_up(task, CrewTaskTimeout(meaning(error, messages.SENSOR_RETRIES)))
    if isinstance(error, errors.WaitedTooLong):
        give_up(task, CrewSensorTimeout(meaning(error, messages.SENSOR_IS_OVER, mend="")))
    give_up(task, CrewTaskFailed(_of_sensor(error)))


def _of_sensor(error: errors.CrewError) -> errors.CrewError:
    if isinstance(error, errors.ExecutionUnknown) and error.has_completed:
        return error
    end = next((end for kind, end in _SENSOR_ENDS.items() if isinstance(error, kind)), None)
    return meaning(error, end) if end else error
