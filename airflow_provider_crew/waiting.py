"""How a task waits for an execution: in the triggerer or in the worker, with the same words for the same ends."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout, BaseOperator

from airflow_provider_crew.compat import IS_AIRFLOW_2, TELLS_AGAIN
from airflow_provider_crew.defaults import MAX_OUTAGE, NOT_FOUND_GRACE
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.links.crew import DASHBOARD_KEY, CrewDashboardLink
from airflow_provider_crew.metrics import TaskMetrics
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionUnknown,
    LostContact,
    TransientError,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.xcom import USAGE, without_reserved_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.service.watch import Watch
    from airflow_provider_crew.service.watch_state import WatchMemory, WatchRules
    from airflow_provider_crew.triggers.events import WatchEnd

# What a later try may well not meet again.
PASSING = (TransientError, LostContact)

# Our own end of waiting, which says what goes on, has to come before Airflow's, which does not.
_MARGIN = 60.0 if IS_AIRFLOW_2 else 2.0
_LARGEST_MARGIN = 0.1
# How long after the deadline Airflow resumes a task that no triggerer has resumed.
_BACKSTOP = 60.0
_RESUMED_WITHOUT_EVENT = "__fail__"


class CrewTaskFailed(AirflowFailException):
    """Ends a task without a retry, because a retry would not help or would cost. ``error`` is what happened."""

    def __init__(self, error: CrewError, advice: str = "") -> None:
        super().__init__(f"{error}{advice}")
        self.error = error


class CutShort(WaitedTooLong):
    """Waiting was ended by execution_timeout, which every task may have."""


@dataclass(frozen=True, slots=True)
class Origin:
    """
    What is known of an execution besides its id.

    ``exists``: its id comes from the service itself, or was known to it. ``address`` is where it was kicked off.
    """

    kicked_off_at: float | None = None
    exists: bool = False
    address: str = ""


class CrewTask(BaseOperator):
    """What all tasks of this package have: a connection, and a link to the page of its crew."""

    crew_conn_id: str
    token_type: TokenType | None
    execution: str | None = None
    """The kickoff id of the execution that the task is about, as soon as that is known."""
    dashboard_url = ""
    """The page of the crew."""

    operator_extra_links: Collection[BaseOperatorLink] = (CrewDashboardLink(),)

    @cached_property
    def hook(self) -> CrewHook:
        """The hook for the connection."""
        return CrewHook(self.crew_conn_id, token_type=self.token_type)

    def metrics(self, context: Context) -> TaskMetrics:
        """Return what tells Airflow's statistics of this task."""
        return TaskMetrics(self.crew_conn_id, context)

    def leave_link(self, context: Context) -> None:
        """Leave the address of the crew's page; a try that goes on with an execution has to do so again."""
        try:
            if url := self.hook.connection.dashboard_url:
                self.dashboard_url = url
                context["ti"].xcom_push(key=DASHBOARD_KEY, value=url)
            else:
                self._leave_no_link_at_the_end()
        except Exception as error:  # a link is not worth failing for
            if isinstance(error, CrewError) and not isinstance(error, TransientError):
                raise
            self.log.warning("The link to the crew's page could not be left: %s", error)

    def _leave_no_link_at_the_end(self) -> None:
        """Spare Airflow 3 leaving it again whenever a process ends, which takes three requests even for none."""
        others = tuple(link for link in self.operator_extra_links if not isinstance(link, CrewDashboardLink))
        with suppress(AttributeError):  # of an operator that was derived from this one, and finds out its links
            self.operator_extra_links = others

    def on_kill(self) -> None:
        """Say what goes on. Airflow 3 lets the task run on a while, perhaps to its end."""
        if self.execution:
            self.log.warning(
                "Execution %s: the task is to end. The execution cannot be cancelled: it goes on and is paid for. "
                '%sTo wait for it elsewhere: CrewExecutionSensor(kickoff_id="%s").',
                self.execution,
                self.waits_again(),
                self.execution,
            )

    def waits_again(self) -> str:
        """Say how this task itself can wait again, if it can."""
        return ""

    def get_openlineage_facets_on_complete(self, _task_instance: object) -> object:
        """Tell OpenLineage, when it is installed and asks, which execution of which crew the task was about."""
        from airflow.providers.common.compat.openlineage.facet import ExternalQueryRunFacet
        from airflow.providers.openlineage.extractors import OperatorLineage

        if self.execution is None:
            return OperatorLineage()
        address = self.hook.connection.settings.address
        facet = ExternalQueryRunFacet(externalQueryId=self.execution, source=address)
        return OperatorLineage(run_facets={"externalQuery": facet})


class WaitingTask(CrewTask):
    """A task that waits for an execution and returns its result."""

    deferrable: bool
    poll_interval: float | None
    """Seconds between two looks; None: what suits the age of the execution."""
    timeout: float
    max_outage: float | None
    """Seconds for which the service may give no usable answer; None: for as long as it takes."""

    def _was_told(self, end: WatchEnd, context: Context) -> None:
        """Take note of what a trigger has seen."""

    def _looked(self, memory: WatchMemory) -> None:
        """Take note of what a look has brought that was not the end."""

    @property
    @abstractmethod
    def waits_for_people(self) -> bool:
        """Whether the crew may wait for a person, who may take to the end of the time to wait."""

    @property
    def time_limit(self) -> timedelta | None:
        """What ends every task of Airflow, and this one's wait."""
        return self.execution_timeout

    @abstractmethod
    def give_up(self, error: CrewError, context: Context) -> NoReturn:
        """
        Raise what makes Airflow do the right thing about a wait that has brought no result.

        From None: a chain of tracebacks would only hide the message.
        """

    def carried(self) -> dict[str, Any]:
        """Return what execute_complete is to be given besides the event: plain data, as Airflow stores it."""
        return {}

    @abstractmethod
    def execution_waited_for(self, context: Context) -> str:
        """Return the kickoff id, in a process that nobody has told it to."""

    @abstractmethod
    def wait_on(self, context: Context) -> dict[str, Any]:
        """Wait for the same execution, in a process that was resumed and told nothing of it."""

    def finish(self, result: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return the result as the task's own, in a form that XCom takes."""
        self.metrics(context).completed(result.get("execution_time"))
        self.leave_usage(result.get("usage"), str(result.get("kickoff_id")), context)
        return {**result, "output_json": without_reserved_keys(result["output_json"])}

    def leave_usage(self, usage: Any, kickoff_id: str, context: Context) -> None:
        """Leave what the execution has spent where it can be queried; that is not worth failing for."""
        if not isinstance(usage, Mapping) or not usage:
            return
        self.metrics(context).tokens(usage)
        ti = context["ti"]
        try:
            ti.xcom_push(key=USAGE, value={"kickoff_id": kickoff_id, "try_number": ti.try_number, **usage})
        except Exception as error:  # noqa: BLE001
            self.log.warning("Execution %s: its usage could not be pushed to XCom: %s", kickoff_id, error)

    def wait_for(self, kickoff_id: str, context: Context, origin: Origin) -> dict[str, Any]:
        """Return the result of the execution, or defer until there is one."""
        with self.ending(kickoff_id, context):
            deadline = self.deadline(context)
            watch = self.new_watch(kickoff_id, deadline, origin)
            exists = origin.exists or self.waits_for_people
            # Whether there is such an execution is seen here: another triggerer would not know.
            defers_at = time.time() + (0.0 if exists else NOT_FOUND_GRACE)
            with self.metrics(context).looks_of(watch):
                while not (step := self.hook.look(watch)).completed:
                    self._looked(watch.memory)
                    if self.deferrable and (watch.memory.seen or time.time() >= defers_at):
                        self._defer(watch, deadline, origin, context)
                    self.hook.pause(step, watch)
        return self.finish(step.completed.result(), context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Resume with what the trigger has seen."""
        from airflow_provider_crew.triggers.events import read_event

        end = read_event(event)
        if end is None:
            why = "what it told cannot be read"
            return self._look_after_all(self.execution_waited_for(context), why, context)
        self.metrics(context).looks(end.looks)
        self._was_told(end, context)
        with self.ending(end.kickoff_id, context):
            if end.error:
                raise end.error
            result = end.result or self._read(end, context)
        return self.finish(result, context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """
        Resume also without an event: the trigger broke, or no triggerer was there in time.

        Not through the base class: that of sensors replaces what a skipped or timed out one has to say.
        """
        self._leave_no_link_at_the_end()  # the process before has done so
        told = dict(next_kwargs or {})
        try_number = told.pop("try_number", context["ti"].try_number)
        if next_method != _RESUMED_WITHOUT_EVENT:
            if "event" not in told:  # cleared in the very moment of its deferral
                return self.wait_on(context)
            if TELLS_AGAIN and try_number != context["ti"].try_number and "error" in told["event"]:
                return self.execute(context)
            return getattr(self, next_method)(context, **told)
        if traceback := told.get("traceback"):
            self.log.error("The trigger failed:\n%s", "".join(traceback))
        return self._look_after_all(self.execution_waited_for(context), str(told.get("error")), context)

    def _read(self, end: WatchEnd, context: Context) -> dict[str, Any]:
        """Read what was too large for a trigger. Want of time or a hiccup of the service must not fail a task."""
        from airflow_provider_crew.service.watch_words import result_out_of_reach

        now = time.time()
        late = now + (self.max_outage or self.timeout)
        # The service knew it a moment ago, as after a kickoff.
        known = Origin(kicked_off_at=now, exists=True)
        rules = self._rules(max(end.deadline, late), known)
        if end.completed:  # so that it waits for nobody
            rules = replace(rules, human_input=False, max_outage=self.max_outage or MAX_OUTAGE)
        watch = self.hook.new_watch(end.kickoff_id, rules)
        try:
            with self.metrics(context).looks_of(watch):
                return self.hook.watch(watch).result()
        except ExecutionUnknown as error:
            if not end.completed:
                raise
            raise result_out_of_reach(end.kickoff_id, error.lasted) from None

    @contextmanager
    def ending(self, kickoff_id: str, context: Context) -> Iterator[None]:
        """Let the task end as it should where the block ends without a result."""
        self.execution = kickoff_id
        try:
            yield
        except KeyboardInterrupt:
            self.on_kill()
            raise
        except CrewError as error:
            end = error if kickoff_id in str(error) else _about(kickoff_id, error)
        except AirflowTaskTimeout:
            end = CutShort(
                f"Execution {kickoff_id} was still going when execution_timeout was over. It cannot be cancelled: "
                "it goes on and is paid for. Do not kick off again.",
                kickoff_id=kickoff_id,
            )
        else:
            return
        if isinstance(end, WaitedTooLong) and self._is_cut_short:
            end = CutShort(str(end), kickoff_id=kickoff_id)
        self.metrics(context).gave_up(end)
        if isinstance(end, ExecutionFailed):
            self.leave_usage(end.usage, kickoff_id, context)
        self.give_up(end, context)

    def new_watch(
        self,
        kickoff_id: str,
        deadline: float,
        origin: Origin,
        memory: WatchMemory | None = None,
    ) -> Watch:
        """Begin to watch under the rules of this task."""
        return self.hook.new_watch(kickoff_id, self._rules(deadline, origin), memory)

    def deadline(self, context: Context) -> float:
        """Return when to stop waiting, by the clock on the wall."""
        deadline = time.time() + self.timeout
        if self.time_limit is None:
            return deadline
        allowed = self.time_limit.total_seconds()
        started_at = context["ti"].start_date.timestamp()
        return min(deadline, started_at + allowed - min(_MARGIN, allowed * _LARGEST_MARGIN))

    @property
    def _is_cut_short(self) -> bool:
        return self.time_limit is not None and self.time_limit.total_seconds() < self.timeout

    def _rules(self, deadline: float, origin: Origin) -> WatchRules:
        from airflow_provider_crew.service.watch_state import WatchRules

        return WatchRules(
            deadline=deadline,
            poll_interval=self.poll_interval,
            max_outage=self.max_outage,
            kicked_off_at=origin.kicked_off_at,
            exists=origin.exists,
            address=origin.address,
            human_input=self.waits_for_people,
        )

    def _look_after_all(self, kickoff_id: str, why: str, context: Context) -> dict[str, Any]:
        timed_out = "timeout" in why
        deadline = time.time() + (0.0 if timed_out else self.timeout)
        with self.ending(kickoff_id, context):
            if timed_out:
                self.log.warning("Execution %s: no triggerer has ended the wait in time.", kickoff_id)
            watch = self.new_watch(kickoff_id, deadline, Origin(exists=True))
            watch.memory.started_at = context["ti"].start_date.timestamp()
            with self.metrics(context).looks_of(watch):
                completed = self.hook.look(watch).completed
            if not completed:
                raise LostContact(
                    f"Execution {kickoff_id} is no longer watched by a triggerer: {why}. The triggerer's log says "
                    "more. The execution goes on and is paid for. Wait for it; do not kick off again.",
                    kickoff_id=kickoff_id,
                )
        return self.finish(completed.result(), context)

    def _defer(self, watch: Watch, deadline: float, origin: Origin, context: Context) -> NoReturn:
        from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

        now = time.time()
        self.defer(
            trigger=CrewExecutionTrigger(
                watch.kickoff_id,
                self.crew_conn_id,
                self.poll_interval,
                deadline=deadline,
                token_type=self.token_type,
                max_outage=self.max_outage,
                kicked_off_at=origin.kicked_off_at,
                exists=origin.exists,
                address=origin.address,
                human_input=self.waits_for_people,
                deferred_at=now,
                memory=watch.memory.handed_over(),
            ),
            method_name="execute_complete",
            kwargs={**self.carried(), "try_number": context["ti"].try_number},
            timeout=timedelta(seconds=max(deadline - now, 0.0) + _BACKSTOP),
        )


def _about(kickoff_id: str, error: CrewError) -> CrewError:
    """Name the execution in an error that does not know of it, such as that of a connection."""
    return WatchBroken(
        f"Execution {kickoff_id} cannot be watched. {error} It may go on and is paid for. Mend this, and wait for "
        "it again; do not kick off again.",
        kickoff_id=kickoff_id,
    )
