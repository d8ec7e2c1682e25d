"""A task that waits for an execution which was kicked off elsewhere."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, Context, TaskDeferred

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import checked_kickoff_id
from airflow_provider_crew.client.errors import (
    Cost,
    CrewError,
    InvalidKickoffId,
    InvalidOutputType,
    InvalidSettings,
)
from airflow_provider_crew.client.options import LONGEST_INTERVAL, MAX_OUTAGE, NOT_FOUND_GRACE
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.client.watch import WatchMemory, WatchRules, result_out_of_reach
from airflow_provider_crew.compat import (
    SETTLING_TIME,
    TIME_TO_SAY_SO,
    first_poke,
    lacks_event,
    resumed_with_old_error,
    trigger_timed_out,
)
from airflow_provider_crew.durable.outcome import CutShort
from airflow_provider_crew.durable.record import USAGE, without_reserved_keys
from airflow_provider_crew.durable.result import (
    OutputArguments,
    ReportArguments,
    check_type,
    finished,
    may_log_output,
    report,
)
from airflow_provider_crew.durable.task import RunningTask, is_nothing, template_text
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import WatchEnd, read_event

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.polling import Poller

# Of what a short execution_timeout allows, this share is left for the end.
_LARGEST_SHARE = 0.1
# How long after the deadline Airflow resumes a task that no triggerer has resumed.
_BACKSTOP = 60.0


class WaitArguments(OutputArguments, ReportArguments, Protocol):
    """
    How a task waits, as its author says.

    ``poll_interval``: seconds between two polls; None: what suits the age of the execution. ``max_outage``:
    seconds for which the service may give no usable answer; None: for as long as it takes. ``human_input``: the
    crew may wait for a person.
    """

    deferrable: bool
    poll_interval: float | None
    timeout: float
    max_outage: float | None
    human_input: bool | None

    @property
    def time_limit(self) -> timedelta | None:
        """What ends every task of Airflow, and so this one's wait."""


@dataclass(frozen=True, slots=True)
class Wait:
    """
    One task's wait for one execution.

    ``give_up`` raises what an end without a result means for the task. ``saw`` is told what each poll has left the
    watch with, and ``has_completed`` that the execution has, before its output is looked at.
    """

    task: RunningTask
    given: WaitArguments
    give_up: Callable[[errors.CrewError], NoReturn]
    saw: Callable[[WatchMemory], None] = lambda _: None
    has_completed: Callable[[], object] = lambda: None

    def rules(self, deadline: float, **origin: Any) -> WatchRules:
        """Return how an execution is watched; ``origin`` is what is known of it, as the rules take it."""
        given = self.given
        return WatchRules(
            deadline=deadline,
            poll_interval=given.poll_interval,
            max_outage=given.max_outage,
            human_input=bool(given.human_input),
            **origin,
        )

    def deadline(self) -> float:
        """Return when to stop waiting, by the clock on the wall."""
        deadline, limit = time.time() + self.given.timeout, self.given.time_limit
        if limit is None:
            return deadline
        allowed = limit.total_seconds()
        return min(deadline, self.task.started_at + allowed - min(TIME_TO_SAY_SO, allowed * _LARGEST_SHARE))

    def result(self, kickoff_id: str, **origin: Any) -> dict[str, Any]:
        """Return the result of the execution, or defer until there is one."""
        rules = self.rules(self.deadline(), **origin)
        # Whether there is such an execution is seen here: another triggerer would not know.
        defers_at = time.time() + (0.0 if rules.exists or rules.human_input else NOT_FOUND_GRACE)
        with self.polling(kickoff_id, rules) as poller:
            while not (step := poller.poll()).completed:
                memory = poller.watch.memory
                self.saw(memory)
                if self.given.deferrable and (memory.seen or time.time() >= defers_at):
                    self._defer(kickoff_id, rules, memory)
                poller.pause(step)
        return self.finish(step.completed.result())

    def result_of_completed(self, kickoff_id: str, **origin: Any) -> dict[str, Any]:
        """Return the result of an execution that is known to have completed."""
        return self.finish(self._read(WatchEnd(kickoff_id=kickoff_id, completed=True), **origin))

    def resume(self, end: WatchEnd, **origin: Any) -> dict[str, Any]:
        """Resume with what the trigger has seen."""
        self.task.metrics.polls(end.polls)
        self.task.progress.heard(end.progress)
        with self.ending(end.kickoff_id):
            if end.error:
                raise _seen_by_triggerer(end.error, end)
        # The service knew it a moment ago, as after a kickoff.
        return self.finish(end.result or self._read(end, **origin | {"kicked_off_at": time.time()}))

    def poll_after_all(self, kickoff_id: str, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once when the trigger broke, or no triggerer was there in time."""
        task, why = self.task, next_kwargs.get("error", "its event cannot be read")
        if traceback := next_kwargs.get("traceback"):
            task.log.error("The trigger failed:\n%s", "".join(traceback))
        deadline = time.time() + self.given.timeout
        if trigger_timed_out(next_kwargs):
            task.log.warning("No triggerer ended the wait for execution %s in time.", kickoff_id)
            deadline = time.time()
        with self.polling(kickoff_id, self.rules(deadline, exists=True), WatchMemory(task.started_at)) as poller:
            completed = poller.poll().completed
            if not completed:
                raise errors.LostContact(
                    f"Triggerer no longer polls execution {kickoff_id}: {str(why).rstrip('.')}. See the "
                    "triggerer's log.",
                    kickoff_id=kickoff_id,
                )
        return self.finish(completed.result())

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result as the task's own, if its output is what it is to be."""
        self._note_completion()
        kickoff_id = str(result.get("kickoff_id"))
        self.task.metrics.ended("completed", result.get("execution_time"))
        self._leave_usage(result.get("usage"), kickoff_id)
        self.task.progress.completed(kickoff_id, result)
        report(self.task, self.given, result)
        try:
            self.task.result = finished(self.task, self.given, result)
        except errors.InvalidOutput as error:
            self.give_up(error)
        return self.task.result

    @contextmanager
    def polling(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory | None = None) -> "Iterator[Poller]":
        """Poll, tell of the polls, and let the task end as it should where they bring no result."""
        from airflow_provider_crew.hooks.polling import Poller

        with self.ending(kickoff_id):
            if not (memory and memory.seen):
                self._check_connection(kickoff_id)
            poller = Poller(self.task.hook, kickoff_id, rules, memory, self.task.progress)
            try:
                yield poller
            finally:
                self.task.metrics.polls(poller.watch.polls)

    def _check_connection(self, kickoff_id: str) -> None:
        """Leave a task without its connection to its retries at once, instead of after an outage."""
        try:
            self.task.hook.get_conn()
        except errors.Unreachable as error:
            raise errors.LostContact(
                f"Execution {kickoff_id} cannot be polled. {error.event}",
                next_step=error.next_step,
                kickoff_id=kickoff_id,
                lacks_connection=True,
            ) from None

    @contextmanager
    def ending(self, kickoff_id: str) -> Iterator[None]:
        """Let the task end as it should where the block ends without a result."""
        task = self.task
        task.execution = kickoff_id
        try:
            yield
        except KeyboardInterrupt:
            task.end()
            raise
        except errors.CrewError as error:
            end = error if error.kickoff_id == kickoff_id else _about(kickoff_id, error)
        except AirflowTaskTimeout:
            what = "had completed, and its result was unread," if task.has_ended else "was still running"
            end = CutShort(f"Execution {kickoff_id} {what} when execution_timeout passed.", kickoff_id=kickoff_id)
        else:
            return
        limit = self.given.time_limit
        if isinstance(end, errors.WaitedTooLong) and limit and limit.total_seconds() < self.given.timeout:
            end = CutShort(end.event, kickoff_id=kickoff_id)
        if task.has_ended:  # what ended is the wait for its result
            end = end.replace(cost=Cost.ENDED)
        task.metrics.gave_up(end)
        if isinstance(end, errors.ExecutionFailed):
            self._leave_usage(end.usage, kickoff_id)
        self.give_up(end)

    def _read(self, end: WatchEnd, **origin: Any) -> dict[str, Any]:
        """Read what no process has handed over. Want of time or a hiccup of the service may not fail a task."""
        given = self.given
        deadline = max(end.deadline, time.time() + (given.max_outage or given.timeout))
        rules = self.rules(deadline, **{"exists": True, **origin})
        if end.completed:
            self.task.execution = end.kickoff_id
            self._note_completion()
            # It waits for nobody, and what is in the way ends this before the time does.
            patience = given.max_outage or MAX_OUTAGE
            rules = replace(rules, human_input=False, max_outage=patience, deadline=deadline + patience)
        with self.polling(end.kickoff_id, rules) as poller:
            try:
                return poller.to_end().result()
            except errors.ExecutionUnknown as error:
                if error.elsewhere or not end.completed:
                    raise
                raise result_out_of_reach(end.kickoff_id, error.lasted) from None

    def _note_completion(self) -> None:
        """See to it that what ends the task from here on is told, and remembered, of a completed execution."""
        if not self.task.has_ended:
            self.task.has_ended = True
            self.has_completed()

    def _leave_usage(self, usage: Any, kickoff_id: str) -> None:
        """Leave what the execution has spent where it can be queried."""
        if not isinstance(usage, Mapping) or not usage:
            return
        task = self.task
        task.metrics.tokens(usage)
        known = {"kickoff_id": kickoff_id, "try_number": task.ti.try_number}
        spent = {**without_reserved_keys(dict(usage)), **known}
        task.leave(USAGE, spent, what=f"Token usage of execution {kickoff_id}")

    def _defer(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory) -> NoReturn:
        task, now = self.task, time.time()
        task.outlets.carry()
        raise TaskDeferred(
            trigger=CrewExecutionTrigger(
                kickoff_id,
                task.crew_conn_id,
                rules=asdict(rules),
                token_type=task.token_type,
                deferred_at=now,
                memory=memory.handed_over(),
                log_output=may_log_output(self.given),
            ),
            method_name="execute_complete",
            kwargs={**task.carried, "try_number": task.ti.try_number},
            timeout=timedelta(seconds=max(rules.deadline - now, 0.0) + _BACKSTOP),
        )


def _seen_by_triggerer(error: errors.CrewError, end: WatchEnd) -> errors.CrewError:
    """Add a hint when the triggerer alone could not reach the crew: the worker had an answer before it."""
    if not (isinstance(error, errors.LostContact) and end.seen and 0 < end.polls.all == end.polls.failed):
        return error
    hint = (
        "The triggerer does not find the connection, and the worker does. Compare their environment variables and "
        "secrets backends."
        if error.lacks_connection
        else "The triggerer never got an answer, and the worker did. Compare how they reach the crew."
    )
    return error.replace(f"{error.event} {hint}")


def _about(kickoff_id: str, error: errors.CrewError) -> errors.CrewError:
    """Name the execution in an error that does not know of it, such as that of a connection."""
    event = f"Execution {kickoff_id} cannot be polled. {error.event}"
    return errors.WatchBroken(event, next_step=error.next_step, kickoff_id=kickoff_id)


log = logging.getLogger(__name__)

_KEY = "crew_watch"


class Sense:
    """One task's wait for an execution of which it knows no more than the id."""

    def __init__(
        self, task: RunningTask, given: WaitArguments, kickoff_id: Any, give_up: Callable[[CrewError], NoReturn]
    ) -> None:
        task.waits_again = "Airflow's retry, or clearing this task, waits for the same execution."
        if type(kickoff_id) is int:  # True is none
            kickoff_id = str(kickoff_id)  # native rendering makes a number of one that looks like one
        if not isinstance(kickoff_id, str) or is_nothing(kickoff_id):
            template = template_text(task.templates.get("kickoff_id"), kickoff_id)
            give_up(
                InvalidKickoffId(
                    f"kickoff_id is {kickoff_id!r}, which is no kickoff ID. Its template: {template}.",
                    cost=Cost.UNKNOWN,
                    next_step="Check what the kickoff task returned, and clear this task. Over a mapped kickoff, "
                    "map the sensor: .expand(kickoff_id=kickoff.output).",
                )
            )
        try:
            checked_kickoff_id(kickoff_id)
        except InvalidKickoffId as error:
            give_up(error.replace(cost=Cost.UNKNOWN))
        self._kickoff_id = kickoff_id
        self._seen = SeenBefore(task.context, kickoff_id)
        self._wait = Wait(task, given, give_up, self._seen.keep_that_it_exists)

    def result(self) -> dict[str, Any]:
        """Wait in the worker or in the triggerer, and return the result."""
        self._check_given()
        self._wait.task.leave_link(self._kickoff_id)
        # Perhaps it was kicked off just now, by the task before.
        return self._wait.result(self._kickoff_id, kicked_off_at=time.time(), exists=self._seen.exists)

    def result_or_reschedule(self) -> dict[str, Any]:
        """Poll in a process of its own, which remembers the polls before it where Airflow lets it (from 3.3)."""
        self._check_given()
        self._wait.task.leave_link(self._kickoff_id)
        wait, seen = self._wait, self._seen
        began = first_poke(wait.task.context)
        if seen.lasts:
            kicked_off_at, memory = began, seen.recall()
        else:  # a poke that remembers none begins anew
            kicked_off_at, memory = time.time(), WatchMemory(began, said_at=time.time())
        rules = wait.rules(began + wait.given.timeout, kicked_off_at=kicked_off_at, exists=seen.exists)
        with wait.polling(self._kickoff_id, rules, memory) as poller:
            step = poller.poll()
            # A process that leaves nothing to the next polls on where only polling again soon can tell.
            while not seen.lasts and (step.renew_token or poller.watch.is_in_doubt):
                poller.pause(step)
                step = poller.poll()
        if step.completed:
            return wait.finish(step.completed.result())
        seen.keep(poller.watch.memory)
        wait.task.progress.leave_again()
        # Without a memory every "unknown" looks like the first one, so there is no hurry.
        is_at_leisure = not seen.lasts and "unknown" in poller.watch.memory.troubles
        pause = timedelta(seconds=max(step.poll_again_in, LONGEST_INTERVAL if is_at_leisure else SETTLING_TIME))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def poke(self) -> dict[str, Any] | None:
        """Poll once; return the result, or None while there is none."""
        self._check_given()
        wait, now = self._wait, time.time()
        rules = wait.rules(now + wait.given.timeout, kicked_off_at=now, exists=self._seen.exists)
        with wait.polling(self._kickoff_id, rules) as poller:
            completed = poller.poll().completed
        return wait.finish(completed.result()) if completed else None

    def resume(self, next_method: str, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral."""
        if resumed_with_old_error(next_kwargs, self._wait.task.ti) or lacks_event(next_method, next_kwargs):
            return self.result()
        end = read_event(next_kwargs.get("event"))
        if end is None:
            return self._wait.poll_after_all(self._kickoff_id, next_kwargs)
        if end.seen and not end.result:
            self._seen.keep_that_it_exists(WatchMemory(time.time(), seen=True))
        return self._wait.resume(end)

    def _check_given(self) -> None:
        """Reject a type, or a connection, that cannot be used before there is a long wait."""
        try:
            self._wait.task.check_connection()
            check_type(self._wait.given)
        except InvalidOutputType as error:
            self._wait.give_up(error)
        except InvalidSettings as error:
            self._wait.give_up(error.replace(cost=Cost.UNKNOWN))


class SeenBefore:
    """
    What a sensor remembers between two pokes and between tries, where Airflow lets it (from 3.3).

    It keeps what the watch of one try has seen, and for all tries that the service has known the execution. Losing
    it fails nothing.
    """

    def __init__(self, context: Context, kickoff_id: str) -> None:
        self._store: Any = context.get("task_state_store")
        self.lasts = self._store is not None
        """Whether the next process will know what this one saw."""
        self._kickoff_id = kickoff_id
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}
        self._kept = self._read()

    @property
    def exists(self) -> bool:
        """Whether the service has known the execution, in this try or in one before."""
        return bool(self._kept.get("seen", {}).get("seen"))

    def recall(self) -> WatchMemory | None:
        """Return what the poke before has kept, if it was one of this try."""
        return WatchMemory.recalled(self._kept["seen"]) if self._kept.get("try") == self._try else None

    def keep(self, memory: WatchMemory) -> None:
        """Keep it for the next process, which most of the time is to know what this one was told already."""
        # A new try begins a new watch, and what an earlier one has seen still exists.
        kept = {"try": self._try, "seen": memory.carried() | {"seen": memory.seen or self.exists}}
        if not self.lasts or kept == self._kept:
            return
        self._kept = kept
        try:
            self._store.set(_KEY, kept)
        except Exception as error:  # noqa: BLE001
            warn(log, f"What was seen of the execution cannot be kept for the next process: {error}")

    def keep_that_it_exists(self, memory: WatchMemory) -> None:
        """Keep it as soon as the service knows the execution: from then on, unknown is not gone."""
        if memory.seen and not self.exists:
            self.keep(memory)

    def _read(self) -> dict[str, Any]:
        if not self.lasts:
            return {}
        try:
            match self._store.get(_KEY):
                case {"try": {"kickoff_id": self._kickoff_id}, "seen": {}} as kept:
                    return dict(kept)
        except Exception as error:  # noqa: BLE001
            warn(log, f"What was seen of the execution before cannot be read: {error}")
        return {}
