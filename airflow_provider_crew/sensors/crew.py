"""The sensor: waits for an execution that was kicked off elsewhere."""

from __future__ import annotations

import reprlib
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    conf,
)

from airflow_provider_crew.compat import KEEPING
from airflow_provider_crew.defaults import LONGEST_INTERVAL, MAX_OUTAGE, SETTLING_TIME, TIMEOUT, seconds
from airflow_provider_crew.sensors.memory import WaitMemory
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionNotFound,
    ExecutionUnknown,
    InvalidKickoffId,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.waiting import PASSING, CrewTaskFailed, CutShort, Origin, WaitingTask

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.service.watch_state import WatchMemory
    from airflow_provider_crew.triggers.events import WatchEnd


# No service counts as far, and Python does not write numbers of any width.
_TOO_WIDE = 10**1000
_WAIT_AGAIN = " Clear this task to wait again."
_NEVER_SEEN = " If it may wait for a person: give this task human_input=True, and clear it."
_UNKNOWN = (
    f" Clear this task{KEEPING} to wait again. With human_input=True it waits to the end of timeout. To give the "
    "execution up: in the tab Task State Store of the task that kicked it off, delete crew_kickoff, and clear "
    "that task, which kicks off anew."
)


class CrewExecutionSensor(WaitingTask, BaseSensorOperator):
    """
    Wait until an execution has completed, and return its result.

    A failed execution ends the task without a retry, since it stays failed; so do a token that is not accepted, an
    unknown execution and a time-out. An outage of the service beyond max_outage is retried.

    :param kickoff_id: the id that a kickoff returned (templated)
    :param crew_conn_id: the connection to the crew (templated)
    :param token_type: ``organization`` or ``user``; by default what the connection says, or the only token it has
    :param deferrable: wait in the triggerer; by default what ``[operators] default_deferrable`` says. Without it,
        ``mode`` says how the worker waits.
    :param poke_interval: seconds between two looks; None: 5 to 60, the more the longer the execution has run
    :param timeout: seconds after which to stop waiting; the execution goes on
    :param max_outage: seconds without a usable answer after which to stop waiting; None: go on until timeout
    :param human_input: the crew may wait for a person's answer, until timeout if need be. The service may say of
        a crew that waits that it does not know it.
    """

    template_fields = ("kickoff_id", "crew_conn_id")
    ui_color = "#d6e9e3"

    def __init__(  # noqa: PLR0913 - what a user sets by name
        self,
        *,
        kickoff_id: str | XComArg,
        crew_conn_id: str = "crew_default",
        token_type: TokenType | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        human_input: bool = False,
        **kwargs: Any,
    ) -> None:
        self.poll_interval = None if poke_interval is None else seconds(poke_interval, "poke_interval")
        timeout = seconds(timeout, "timeout", at_least=0)
        super().__init__(poke_interval=self.poll_interval or LONGEST_INTERVAL, timeout=timeout, **kwargs)
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.token_type = token_type
        self.deferrable = deferrable
        self.human_input = human_input
        self._memory: WaitMemory | None = None
        # Who wants a sensor to go on silently after a failed look wants no outage to end it.
        self.max_outage = None if max_outage is None or self.silent_fail else seconds(max_outage, "max_outage")

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait, and return the result."""
        kickoff_id = self.execution_waited_for(context)
        if self.exponential_backoff:
            self.log.warning("exponential_backoff has no effect here: every wait keeps to poke_interval.")
        with self.ending(kickoff_id, context):
            self.leave_link(context)
        memory = WaitMemory(context, kickoff_id)
        if self.deferrable or not self.reschedule:
            self._memory = memory
            # Perhaps it was kicked off just now, by the task before.
            return self.wait_for(kickoff_id, context, Origin(time.time(), exists=memory.has_seen))
        return self._look_or_reschedule(kickoff_id, context, memory)

    def _looked(self, memory: WatchMemory) -> None:
        """Keep that the execution exists, for the next try."""
        if self._memory:
            self._memory.keep_that_it_exists(memory)

    def _was_told(self, end: WatchEnd, context: Context) -> None:
        """Keep that the execution exists, for the next try."""
        from airflow_provider_crew.service.watch_state import WatchMemory

        if end.seen and not end.result:
            WaitMemory(context, end.kickoff_id).keep_that_it_exists(WatchMemory(time.time(), seen=True))

    @property
    def waits_for_people(self) -> bool:
        """What was said."""
        return self.human_input

    def wait_on(self, context: Context) -> dict[str, Any]:
        """Wait, as every try does."""
        return self.execute(context)

    def execution_waited_for(self, context: Context) -> str:
        """Return the kickoff id as text: native rendering makes a number of one that looks like one."""
        given: Any = self.kickoff_id
        is_number = isinstance(given, int) and not isinstance(given, bool) and abs(given) < _TOO_WIDE
        if not (isinstance(given, str) or is_number):
            fault = InvalidKickoffId(
                f"kickoff_id is {_shown(given)}, which is no kickoff id. Did the task that kicks off return one? "
                "Map the sensor over a mapped kickoff: .expand(kickoff_id=kickoff.output)."
            )
            self.give_up(fault, context)
        return str(given)

    def give_up(self, error: CrewError, context: Context) -> NoReturn:  # noqa: ARG002 - the operators need it
        """Skip, time out, fail for good or leave it to a retry: alike, however the sensor has waited."""
        passes = isinstance(error, PASSING)
        if self.never_fail or (self.soft_fail and not passes):
            raise AirflowSkipException(str(error)) from None
        if passes:
            raise error from None
        if isinstance(error, WatchBroken):
            raise CrewTaskFailed(error, _WAIT_AGAIN) from None
        if isinstance(error, ExecutionNotFound):
            raise CrewTaskFailed(error, _NEVER_SEEN) from None
        if isinstance(error, ExecutionUnknown) and not error.has_completed:
            raise CrewTaskFailed(error, _UNKNOWN) from None
        if not isinstance(error, WaitedTooLong):
            raise CrewTaskFailed(error) from None
        told = f"{error}{_WAIT_AGAIN}"
        raise AirflowTaskTimeout(told) if isinstance(error, CutShort) else AirflowSensorTimeout(told) from None

    def waits_again(self) -> str:
        """Say so: each try does."""
        return "A retry of this task, or clearing it, waits again. "

    @property
    def _is_cut_short(self) -> bool:
        """A rescheduled task is given its execution_timeout anew at every poke."""
        return super()._is_cut_short and (self.deferrable or not self.reschedule)

    def _look_or_reschedule(self, kickoff_id: str, context: Context, memory: WaitMemory) -> dict[str, Any]:
        """Look in a process of its own, which remembers the looks before it where Airflow lets it (from 3.3)."""
        origin = Origin(memory.grace_from, exists=memory.has_seen)
        with self.ending(kickoff_id, context):
            deadline = memory.begun_at + self.timeout
            watch = self.new_watch(kickoff_id, deadline, origin, memory.recalled())
            with self.metrics(context).looks_of(watch):
                step = self.hook.look(watch)
                while not memory.lasts and (step.renew_token or watch.is_in_doubt):
                    self.hook.pause(step, watch)
                    step = self.hook.look(watch)
            if step.completed:
                return self.finish(step.completed.result(), context)
        memory.keep(watch.memory)
        # A poke that remembers none takes every unknown for the first.
        is_at_leisure = not memory.lasts and watch.memory.unknown_since is not None
        pause = timedelta(seconds=max(step.poll_again_in, LONGEST_INTERVAL if is_at_leisure else SETTLING_TIME))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]


def _shown(given: Any) -> str:
    """Return the beginning of what may be as large as a result."""
    try:
        return reprlib.repr(given)
    except ValueError:  # an integer that is too long to be written
        return f"of type {type(given).__name__}"
