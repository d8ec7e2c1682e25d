"""
End of a process before its work is done, because Airflow ends the task, or its time is over.

What may still be sent then, what no signal may interrupt, and cancelling.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from threading import Event, Thread, current_thread, main_thread
from typing import NoReturn, TypeVar

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew import api_server
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.models import Completed, Failed
from airflow_provider_crew.client.wording import after_cancelling
from airflow_provider_crew.exceptions import CrewTaskError, CutShort, EndedByAirflow
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.verdict import Facts, verdict

T = TypeVar("T")

UNWATCHED = "timeout of the deferral"
"""Limit at which nothing is cancelled: no triggerer has seen it pass, so the clock may have jumped."""
# Seconds without a beat after which the process counts as suspended.
_SUSPENDED = 60.0
_LOOK_AT_WORK = 0.5


class _PollInterrupted(BaseException):
    """Raised by the signal handler of Airflow during a poll of the crew."""


class Pulse:
    """
    Pulse of this process, whatever it does, which shows that it was suspended.

    Airflow may then have failed the task for its missing heartbeats, which looks like a user's mark.

    :param clock: Seconds that pass even while the machine sleeps.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self._was_suspended = False

    def was_suspended(self) -> bool:
        """Whether the process was ever suspended. This is a beat, because the thread may be late after a pause."""
        now = self._clock()
        self._was_suspended = self._was_suspended or now - self._last > _SUSPENDED
        self._last = now
        return self._was_suspended

    def beat(self) -> NoReturn:
        """Beat forever."""
        pause = Event()
        while True:
            pause.wait(timing.BEAT)
            self.was_suspended()


@cache
def pulse_of(_pid: int) -> Pulse:
    """Return the pulse of a process. A child process has no thread of its parent, so it needs its own."""
    pulse = Pulse(timing.ticks)
    Thread(target=pulse.beat, name="crew-pulse", daemon=True).start()
    return pulse


class Stop:
    """Whether Airflow is ending this process, and what it may still do. One rule for all kinds of tasks."""

    def __init__(self, task: Task, pulse: Pulse | None = None) -> None:
        self._task = task
        self._pulse = pulse or pulse_of(os.getpid())
        self._is_polling = False
        self._has_heeded = False

    def is_told(self) -> bool:
        """Whether Airflow is ending the task."""
        return self._task.is_told_to_end()

    def cancels(self) -> bool:
        """Whether to cancel executions: a user has marked the task, and ``cancel_on_kill`` applies."""
        may_cancel = self.is_told() and not self._pulse.was_suspended() and self._task.cancels_on("kill")
        return may_cancel and api_server.has_ended(self._task.ti)

    def heed(self, facts: Facts, earlier_id: str | None = None) -> None:
        """
        Raise if Airflow has ended the task and ``cancel_on_kill`` applies, and in a batch in any case.

        On Airflow 3, a task goes on after SIGTERM until Airflow kills it. A task that was cleared reattaches.

        :param earlier_id: Execution of an earlier attempt that may be running.
        """
        rows = facts.rows
        kickoff_id = facts.kickoff_id if facts.phase in {"waiting", "ended"} else earlier_id or ""
        if self._has_heeded or not (kickoff_id or rows) or not self.is_told():
            return
        self._has_heeded = True
        is_running = rows.is_waiting if rows else facts.phase != "ended"
        if is_running and self.cancels():
            facts.kickoff_id, facts.phase, facts.has_retry = kickoff_id, "waiting", False
            raise EndedByAirflow("Airflow ended the task while it was waiting.", kickoff_id=kickoff_id)
        # Before it reattaches, the verdict adds what is known of the execution of an earlier attempt.
        state = {"waiting": "continues", "ended": "has completed"}.get(facts.phase)
        known = f" The execution {state}." if state else ""
        told = errors.CrewError(f"Airflow is ending this task.{known}", kickoff_id=kickoff_id)
        if rows:  # it would start more
            raise told
        self._task.warn(verdict(told, replace(facts, is_ending=True)).failure.story)

    def cancelled_if_wanted(
        self, error: BaseException, cancel: Callable[[], Completed | Failed]
    ) -> tuple[BaseException, Completed | Failed | None]:
        """
        Cancel an execution whose wait has ended, if that is wanted.

        Return the error that says so, and the end of the execution, if the crew has reported one.
        """
        if not isinstance(error, EndedByAirflow | errors.WaitedTooLong):
            return error, None
        is_late = isinstance(error, errors.WaitedTooLong) and error.limit != UNWATCHED
        is_wanted = isinstance(error, EndedByAirflow) or (is_late and self._task.cancels_on("timeout"))
        if not is_wanted or self._pulse.was_suspended():  # a later attempt may wait for it
            return error, None
        try:
            execution = cancel()
        except Exception as failure:  # noqa: BLE001 - a secrets backend may raise anything
            return after_cancelling(error, failure), None
        return after_cancelling(error, execution), execution

    def look_before(self, what: str, interrupted: Event | None = None) -> None:
        """
        Raise if Airflow is ending the task, if its time is over, or if the process was suspended.

        Storing the intent may take minutes. After a suspension, Airflow may have failed the task.
        """
        limit = self._task.options.execution_timeout
        if limit and time.monotonic() - self._task.began >= limit.total_seconds():
            raise CutShort(f"execution_timeout passed before the {what}.")
        if (interrupted and interrupted.is_set()) or self.is_told():
            raise CrewTaskError(f"The task was ended before the {what}.")
        if self._pulse.was_suspended():
            raise CrewTaskError(f"The process was suspended for more than a minute before the {what}.")

    def sleep(self, seconds: float, heed: Callable[[], object]) -> None:
        """Sleep, and call a function at times if Airflow is ending the task."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, timing.LOOK))
            if self.is_told():
                heed()

    def interruptibly(self, poll: Callable[[str], T], kickoff_id: str, heed: Callable[[], object]) -> T:
        """
        Return the response of the crew, and poll again after an interruption.

        Airflow kills the process 5 seconds after SIGTERM, and a response may take longer. Only this request may be
        interrupted: one to Airflow would leave its channel in disorder.
        """
        while True:
            try:
                self._is_polling = True
                try:
                    return poll(kickoff_id)
                finally:
                    self._is_polling = False
            except _PollInterrupted:
                heed()

    def interrupt(self) -> None:
        """Interrupt a poll from the signal handler."""
        if self._is_polling and current_thread() is main_thread():
            self._is_polling = False
            raise _PollInterrupted


def as_cut_short(error: BaseException, kickoff_id: str) -> BaseException:
    """Return the error that ends a wait, as CutShort if it is due to execution_timeout."""
    if isinstance(error, AirflowTaskTimeout):
        return CutShort("execution_timeout passed while the execution was running.", kickoff_id=kickoff_id)
    if type(error) is errors.WaitedTooLong and error.limit == "execution_timeout":
        return CutShort(error.event, kickoff_id=error.kickoff_id, at=error.at)
    return error


def shielded(work: Callable[[Event], T]) -> T:
    """
    Return the result of work that a signal must not interrupt, such as sending a kickoff and recording its ID.

    Python runs signal handlers in the main thread only. So the work runs in another thread, and the exception of a
    handler arrives when the work has ended. A second signal may end the wait, but not the work.

    :param work: Takes an event that is set as soon as a handler has raised. It should end early if it can.
    """
    begin, interrupted, done, outcome = Event(), Event(), Event(), Future[T]()

    def run() -> None:
        begin.wait()
        try:
            if not interrupted.is_set():  # while the thread was being started
                outcome.set_result(work(interrupted))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            outcome.set_exception(error)
        finally:
            done.set()

    try:
        Thread(target=run, name="crew-kickoff").start()
        begin.set()
        # Not join(): if a signal handler raises there, Python takes the thread for ended (bpo-45274). With a
        # timeout, because Python may not notice a signal that arrives just before the main thread blocks.
        while not done.wait(_LOOK_AT_WORK):
            pass
    except BaseException:
        interrupted.set()
        while begin.is_set() and not done.wait(_LOOK_AT_WORK):
            pass
        begin.set()
        raise
    return outcome.result()
