"""Wait of a task for its execution, for the run operator and the sensor."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

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
    MIN_DEFERRAL_SECONDS,
    SHUTDOWN_MARGIN,
    first_poke,
    lacks_event,
    resumed_with_old_error,
    trigger_timed_out,
)
from airflow_provider_crew.durable.record import USAGE, without_reserved_keys
from airflow_provider_crew.durable.result import (
    check_type,
    finished,
    may_log_output,
    report,
)
from airflow_provider_crew.durable.task import RunningTask, is_nothing, template_text
from airflow_provider_crew.exceptions import CutShort
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import WatchEnd, read_event

if TYPE_CHECKING:
    from airflow_provider_crew.durable.result import WaitingTask
    from airflow_provider_crew.hooks.polling import Poller

# Share of a short execution_timeout that is reserved for ending the task.
_LARGEST_SHARE = 0.1
# Seconds after the deadline at which Airflow resumes a task that no triggerer has resumed.
_BACKSTOP = 60.0


@dataclass(frozen=True, slots=True)
class Wait:
    """
    Wait of one task for one execution.

    :param task: Running task.
    :param given: Operator or sensor, with its rendered arguments.
    :param give_up: Function that ends the task if the wait ends without a result.
    :param saw: Function called with the state of the watch after each poll.
    :param has_completed: Function called when the execution has completed, before its output is checked.
    """

    task: RunningTask
    given: "WaitingTask"
    give_up: Callable[[errors.CrewError], NoReturn]
    saw: Callable[[WatchMemory], None] = lambda _: None
    has_completed: Callable[[], object] = lambda: None

    def rules(self, deadline: float, **origin: Any) -> WatchRules:
        """Return the rules for polling an execution. ``origin`` holds further fields of WatchRules."""
        given = self.given
        return WatchRules(
            deadline=deadline,
            poll_interval=given.poll_interval,
            max_outage=given.max_outage,
            human_input=bool(given.human_input),
            **origin,
        )

    def deadline(self) -> float:
        """Return the time at which to stop waiting, as a timestamp."""
        deadline, limit = time.time() + self.given.timeout, self.given.time_limit
        if limit is None:
            return deadline
        allowed = limit.total_seconds()
        return min(deadline, self.task.started_at + allowed - min(SHUTDOWN_MARGIN, allowed * _LARGEST_SHARE))

    def result(self, kickoff_id: str, **origin: Any) -> dict[str, Any]:
        """Return the result of the execution, or defer until there is one."""
        rules = self.rules(self.deadline(), **origin)
        # Defer only after the execution was found or the grace period is over: a new triggerer can't tell.
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
        """Return the result of a completed execution."""
        return self.finish(self._read(WatchEnd(kickoff_id=kickoff_id, completed=True), **origin))

    def resume(self, end: WatchEnd, **origin: Any) -> dict[str, Any]:
        """Resume after a deferral with the trigger's event."""
        self.task.metrics.polls(end.polls)
        self.task.progress.heard(end.progress)
        with self.ending(end.kickoff_id):
            if end.error:
                raise _seen_by_triggerer(end.error, end)
        # The service has just reported the execution, so the grace period after a kickoff applies.
        return self.finish(end.result or self._read(end, **origin | {"kicked_off_at": time.time()}))

    def poll_after_all(self, kickoff_id: str, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once if the trigger failed, or if no triggerer ended the wait in time."""
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
        """Report a completed execution and return the result, or fail the task if the output does not match."""
        self._note_completion()
        kickoff_id = str(result.get("kickoff_id"))
        self.task.metrics.ended("completed", result.get("execution_time"))
        self.task.metrics.tokens(result.get("usage") or {})
        if not self.given.do_xcom_push:  # the return value shows the same
            self.task.progress.completed(kickoff_id, result)
        report(self.task, self.given, result)
        try:
            self.task.result = finished(self.task, self.given, result)
        except errors.InvalidOutput as error:
            self.give_up(error)
        return self.task.result

    @contextmanager
    def polling(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory | None = None) -> "Iterator[Poller]":
        """Provide a poller, count its polls, and end the task if they return no result."""
        from airflow_provider_crew.hooks.polling import Poller

        with self.ending(kickoff_id):
            if not (memory and memory.seen):
                self._check_connection(kickoff_id)
            self.task.progress.is_left_to_trigger = self.given.deferrable
            poller = Poller(self.task.hook, kickoff_id, rules, memory, self.task.progress)
            try:
                yield poller
            finally:
                self.task.metrics.polls(poller.watch.polls)

    def _check_connection(self, kickoff_id: str) -> None:
        """Raise LostContact at once if the connection is missing, instead of after an outage."""
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
        """End the task with the right exception if the block ends without a result."""
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
        if task.has_ended:  # only the wait for its result has ended
            end = end.replace(cost=Cost.ENDED)
        task.metrics.gave_up(end)
        if isinstance(end, errors.ExecutionFailed) and end.usage:
            self._push_usage(end.usage, kickoff_id)
        self.give_up(end)

    def _read(self, end: WatchEnd, **origin: Any) -> dict[str, Any]:
        """Poll for a result that the trigger did not return, despite a short outage or a passed deadline."""
        given = self.given
        deadline = max(end.deadline, time.time() + (given.max_outage or given.timeout))
        rules = self.rules(deadline, **{"exists": True, **origin})
        if end.completed:
            self.task.execution = end.kickoff_id
            self._note_completion()
            # A completed execution needs no human input, so the outage limit always ends this before the deadline.
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
        """Record that the execution has completed, for later errors and for the next attempt."""
        if not self.task.has_ended:
            self.task.has_ended = True
            self.has_completed()

    def _push_usage(self, usage: Mapping[str, Any], kickoff_id: str) -> None:
        """Push the token usage of a failed execution to XCom. That of a completed one is in the return value."""
        task = self.task
        task.metrics.tokens(usage)
        known = {"kickoff_id": kickoff_id, "try_number": task.ti.try_number}
        spent = {**without_reserved_keys(dict(usage)), **known}
        task.push_xcom(USAGE, spent, what=f"Token usage of execution {kickoff_id}")

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
    """Add a hint if the triggerer cannot reach the crew although the worker did."""
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
    """Add the execution to an error that does not name it, such as an invalid connection."""
    event = f"Execution {kickoff_id} cannot be polled. {error.event}"
    return errors.WatchBroken(event, next_step=error.next_step, kickoff_id=kickoff_id)


log = logging.getLogger(__name__)

_KEY = "crew_watch"


class Sense:
    """Wait of a sensor, which knows only the kickoff ID of its execution."""

    def __init__(
        self, task: RunningTask, given: "WaitingTask", kickoff_id: Any, give_up: Callable[[CrewError], NoReturn]
    ) -> None:
        task.waits_again = "Airflow's retry, or clearing this task, waits for the same execution."
        if type(kickoff_id) is int:  # not isinstance, because True is an int
            kickoff_id = str(kickoff_id)  # native rendering turns a numeric kickoff ID into an int
        if not isinstance(kickoff_id, str) or is_nothing(kickoff_id):
            template = template_text(task.templates.get("kickoff_id"), kickoff_id)
            give_up(
                InvalidKickoffId(
                    f"kickoff_id {kickoff_id!r} is not a kickoff ID. Its template: {template}.",
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
        """Wait in the worker or the triggerer, and return the result."""
        self._check_given()
        self._wait.task.push_link(self._kickoff_id)
        # The upstream task may have started the execution just now.
        return self._wait.result(self._kickoff_id, kicked_off_at=time.time(), exists=self._seen.exists)

    def result_or_reschedule(self) -> dict[str, Any]:
        """Poll once per process. On Airflow 3.3 and later, the state of the watch is stored between pokes."""
        self._check_given()
        self._wait.task.push_link(self._kickoff_id)
        wait, seen = self._wait, self._seen
        began = first_poke(wait.task.context)
        if seen.lasts:
            kicked_off_at, memory = began, seen.recall()
        else:  # without a store, each poke starts a new watch
            kicked_off_at, memory = time.time(), WatchMemory(began, said_at=time.time())
        rules = wait.rules(began + wait.given.timeout, kicked_off_at=kicked_off_at, exists=seen.exists)
        with wait.polling(self._kickoff_id, rules, memory) as poller:
            step = poller.poll()
            # Without a store, keep polling in this process while only a quick next poll can settle the doubt.
            while not seen.lasts and (step.renew_token or poller.watch.is_in_doubt):
                poller.pause(step)
                step = poller.poll()
        if step.completed:
            return wait.finish(step.completed.result())
        seen.keep(poller.watch.memory)
        # Without a store, every "unknown" looks like the first one, so polling sooner does not help.
        is_at_leisure = not seen.lasts and "unknown" in poller.watch.memory.troubles
        pause = timedelta(
            seconds=max(step.poll_again_in, LONGEST_INTERVAL if is_at_leisure else MIN_DEFERRAL_SECONDS)
        )
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def poke(self) -> dict[str, Any] | None:
        """Poll once. Return the result, or None while the execution is running."""
        self._check_given()
        wait, now = self._wait, time.time()
        rules = wait.rules(now + wait.given.timeout, kicked_off_at=now, exists=self._seen.exists)
        with wait.polling(self._kickoff_id, rules) as poller:
            completed = poller.poll().completed
        return wait.finish(completed.result()) if completed else None

    def resume(self, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral."""
        if resumed_with_old_error(next_kwargs, self._wait.task.ti) or lacks_event(next_kwargs):
            return self.result()
        end = read_event(next_kwargs.get("event"))
        if end is None:
            return self._wait.poll_after_all(self._kickoff_id, next_kwargs)
        if end.seen and not end.result:
            self._seen.keep_that_it_exists(WatchMemory(time.time(), seen=True))
        return self._wait.resume(end)

    def _check_given(self) -> None:
        """Reject an unusable output type or connection before a long wait."""
        try:
            self._wait.task.check_connection()
            check_type(self._wait.given)
        except InvalidOutputType as error:
            self._wait.give_up(error)
        except InvalidSettings as error:
            self._wait.give_up(error.replace(cost=Cost.UNKNOWN))


class SeenBefore:
    """
    State of a sensor between pokes and attempts, stored on Airflow 3.3 and later.

    It stores the watch of one attempt and, for all attempts, whether the service has known the execution. Losing
    this state never fails the task.
    """

    def __init__(self, context: Context, kickoff_id: str) -> None:
        self._store: Any = context.get("task_state_store")
        self.lasts = self._store is not None
        """Whether the next process can read the state of this one."""
        self._kickoff_id = kickoff_id
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}
        self._kept = self._read()

    @property
    def exists(self) -> bool:
        """Whether the service has known the execution in this attempt or an earlier one."""
        return bool(self._kept.get("seen", {}).get("seen"))

    def recall(self) -> WatchMemory | None:
        """Return the watch stored by the previous poke of this attempt, or None."""
        return WatchMemory.recalled(self._kept["seen"]) if self._kept.get("try") == self._try else None

    def keep(self, memory: WatchMemory) -> None:
        """Store the watch for the next process, unless it has not changed."""
        # A new attempt starts a new watch, but an execution that an earlier attempt has seen still exists.
        kept = {"try": self._try, "seen": memory.carried() | {"seen": memory.seen or self.exists}}
        if not self.lasts or kept == self._kept:
            return
        self._kept = kept
        try:
            self._store.set(_KEY, kept)
        except Exception as error:  # noqa: BLE001
            warn(log, f"What was seen of the execution cannot be kept for the next process: {error}")

    def keep_that_it_exists(self, memory: WatchMemory) -> None:
        """Store that the execution exists once the service knows it, so a later NOT FOUND means unknown."""
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
