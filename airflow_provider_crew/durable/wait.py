"""Wait of a task for its execution, for the run operator and the sensor."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from textwrap import indent
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred, conf

from airflow_provider_crew import versions
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import checked_kickoff_id
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.options import LONGEST_INTERVAL, MAX_OUTAGE, NOT_FOUND_GRACE
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.client.watch import Polls, WatchMemory, WatchRules, result_out_of_reach
from airflow_provider_crew.durable.outcome import RETRY_READS, end_wait
from airflow_provider_crew.durable.record import USAGE, without_reserved_keys
from airflow_provider_crew.durable.result import check_type, finished, may_log_output, report
from airflow_provider_crew.durable.task import RunningTask, is_nothing, template_text
from airflow_provider_crew.exceptions import CutShort
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import ANSWERED, STOP_WAITING, WatchEnd, chosen_option, read_event
from airflow_provider_crew.versions import MIN_DEFERRAL_SECONDS

if TYPE_CHECKING:
    from airflow_provider_crew.durable.result import WaitingTask
    from airflow_provider_crew.hooks.polling import Poller

log = logging.getLogger(__name__)

# Seconds before execution_timeout at which a wait ends, so that the task can log that the execution keeps running.
_SHUTDOWN_MARGIN = 2.0
# Seconds that are reserved for cancelling the execution.
_TIME_TO_CANCEL = 10.0
# Share of a short execution_timeout that is reserved for ending the task.
_LARGEST_SHARE = 0.1
# Seconds after the deadline at which Airflow resumes a task that no triggerer has resumed.
_BACKSTOP = 60.0
# Characters of the crew's last output in a request under Required Actions.
_LONGEST_DRAFT = 2_000
# Names of the metrics that count the ends of waits.
_METRICS: dict[type[errors.CrewError], str] = {
    errors.ExecutionFailed: "failed",
    errors.ExecutionCancelled: "timeout",
    errors.ExecutionUnknown: "unknown",
    errors.WaitedTooLong: "timeout",
    errors.WaitStopped: "timeout",
    CutShort: "timeout",
    errors.LostContact: "lost",
}


def may_ask(task: RunningTask) -> bool:
    """Whether a deferred task asks a user under Required Actions when its crew waits for human input."""
    try:
        wanted = conf.getboolean("crew", "required_actions", fallback=True)
    except Exception as error:  # noqa: BLE001 - an invalid setting must not end the wait
        task.warn(f"No user is asked, because [crew] required_actions is unreadable: {error}")
        return False
    return wanted and versions.HAS_REQUIRED_ACTIONS and bool(task.operator.deferrable)


class Wait:
    """Wait of one task for one execution."""

    def __init__(self, task: RunningTask) -> None:
        self.task = task
        self.given: WaitingTask = task.operator

    def origin(self) -> dict[str, Any]:
        """Return the facts about the kickoff, as fields of WatchRules."""
        last = self.task.record and self.task.record.last
        known = {"kicked_off_at": last.kicked_off_at, "address": last.address} if last else {}
        return {"exists": True} | known

    def note_seen(self, memory: WatchMemory) -> None:
        """Handle the state of the watch after a poll."""

    def rules(self, deadline: float, **changes: Any) -> WatchRules:
        """Return the rules for polling the execution."""
        given = self.given
        known = {"deadline": deadline, "human_input": bool(given.human_input)} | self.origin() | changes
        return WatchRules(poll_interval=given.poll_interval, max_outage=given.max_outage, **known)

    def deadline(self) -> float:
        """Return the time at which to stop waiting, as a timestamp."""
        deadline, limit = time.time() + self.given.timeout, self.given.time_limit
        if limit is None:
            return deadline
        allowed = limit.total_seconds()
        margin = max(_SHUTDOWN_MARGIN, _TIME_TO_CANCEL * self.task.cancels_on("timeout"))
        return min(deadline, self.task.started_at + allowed - min(margin, allowed * _LARGEST_SHARE))

    def result(
        self, kickoff_id: str, *, memory: Any = None, asked: bool = False, asks: bool = True, **changes: Any
    ) -> dict[str, Any]:
        """
        Return the result of the execution, or defer until there is one.

        :param memory: State of the watch to continue, as plain data.
        :param asked: Whether a request of the task is open under Required Actions.
        :param asks: Whether the task may create one.
        :param changes: Other rules for the watch.
        """
        record = self.task.record
        if record and record.last and record.last.end == "completed":
            return self.finish(self._read(WatchEnd(kickoff_id=kickoff_id, completed=True)))
        rules = self.rules(changes.pop("deadline", None) or self.deadline(), **changes)
        # Defer only after the execution was found or the grace period is over: a new triggerer can't tell.
        defers_at = time.time() + (0.0 if rules.exists or rules.human_input else NOT_FOUND_GRACE)
        with self.polling(kickoff_id, rules, WatchMemory.recalled(memory)) as poller:
            while not (step := poller.poll()).completed:
                memory = poller.watch.memory
                self.note_seen(memory)
                if self.given.deferrable and (memory.seen or time.time() >= defers_at):
                    rules = replace(rules, stops_for_input=asks and not asked and may_ask(self.task))
                    self._defer(kickoff_id, rules, memory, asked=asked)
                poller.pause(step)
        return self.finish(step.completed.result())

    def resume(self, end: WatchEnd) -> dict[str, Any]:
        """Resume after a deferral with the trigger's event."""
        self._count(end.polls)
        self.task.progress.heard(end.progress)
        if isinstance(end.error, errors.HumanInputNeeded):
            return self._ask(end)
        with self._ending(end.kickoff_id):
            if end.error:
                raise _seen_by_triggerer(end.error, end)
        # The service has just reported the execution, so the grace period after a kickoff applies.
        return self.finish(end.result or self._read(end, kicked_off_at=time.time()))

    def _ask(self, end: WatchEnd) -> dict[str, Any]:
        """Ask a user under Required Actions to answer the crew, and continue to wait."""
        task, kickoff_id = self.task, end.kickoff_id
        page, tasks = task.page(kickoff_id), (end.progress or {}).get("tasks") or [{}]
        where = f"[on its page]({page})" if page else "in its dashboard"
        body = (
            f"Execution {kickoff_id} waits for human input. Answer the crew {where}.\n\n"
            f"**{ANSWERED}** polls the crew at once. **{STOP_WAITING}** fails this task, and the crew keeps "
            "waiting."
        )
        if draft := tasks[-1].get("output"):
            body += "\n\n" + indent(draft[:_LONGEST_DRAFT], "    ")  # as code, because the crew wrote it
        try:
            versions.open_required_action(
                task.ti,
                f"Crew is waiting for human input: {task.ti.task_id}",
                body,
                [ANSWERED, STOP_WAITING],
            )
        except Exception as error:  # noqa: BLE001 - the wait goes on without a request
            task.warn(f"No request was created under Required Actions: {error}")
            return self.result(kickoff_id, memory=end.memory, asks=False, deadline=end.deadline)
        return self.result(kickoff_id, memory=end.memory, asked=True, deadline=end.deadline)

    def answered(self, kickoff_id: str, option: str, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after a user has chosen an option under Required Actions."""
        user = (next_kwargs["event"].get("responded_by_user") or {}).get("name", "a user")
        self.task.log.info("Required Actions: %s has chosen %r for execution %s.", user, option, kickoff_id)
        if option == STOP_WAITING:
            with self._ending(kickoff_id):
                raise errors.WaitStopped(
                    f"Execution {kickoff_id} waits for human input, and {user} has stopped the wait for it.",
                    next_step="Answer the crew in its dashboard.",
                    kickoff_id=kickoff_id,
                )
        known: dict[str, Any] = {name: next_kwargs.get(name) for name in ("memory", "deadline")}
        return self.result(kickoff_id, answered_at=time.time(), **known)

    def poll_after_all(self, kickoff_id: str, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once if the trigger failed, or if no triggerer ended the wait in time."""
        task, why = self.task, next_kwargs.get("error", "its event cannot be read")
        if traceback := next_kwargs.get("traceback"):
            task.log.error("The trigger failed:\n%s", "".join(traceback))
        deadline = time.time() + self.given.timeout
        if versions.trigger_timed_out(next_kwargs):
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
        task, kickoff_id = self.task, str(result.get("kickoff_id"))
        self._count_end("completed", result.get("execution_time"), result.get("usage"))
        task.progress.completed(kickoff_id, result, is_returned=self.given.do_xcom_push)
        report(task, result)
        try:
            task.result = value = finished(task, result)
        except errors.InvalidOutput as error:
            end_wait(task, error)
        return value

    @contextmanager
    def polling(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory | None = None) -> "Iterator[Poller]":
        """Provide a poller, count its polls, and end the task if they return no result."""
        from airflow_provider_crew.hooks.polling import Poller

        task = self.task
        with self._ending(kickoff_id):
            if not (memory and memory.seen):
                try:
                    task.hook.get_conn()
                except errors.Unreachable as error:  # the connection is missing, so fail at once
                    raise errors.LostContact(
                        f"Execution {kickoff_id} cannot be polled. {error.event}",
                        next_step=error.next_step,
                        kickoff_id=kickoff_id,
                        lacks_connection=True,
                    ) from None
            task.progress.is_left_to_trigger = self.given.deferrable
            poller = Poller(task.hook, kickoff_id, rules, memory, task.progress.saw)
            try:
                yield poller
            finally:
                self._count(poller.watch.polls)

    @contextmanager
    def _ending(self, kickoff_id: str) -> Iterator[None]:
        """End the task with the right exception if the block ends without a result."""
        self.task.kickoff_id = kickoff_id
        try:
            yield
        except KeyboardInterrupt:
            self.task.end()
            raise
        except errors.CrewError as error:
            if error.kickoff_id == kickoff_id:
                self._give_up(error)
            event = f"Execution {kickoff_id} cannot be polled. {error.event}"  # such as an invalid connection
            self._give_up(errors.WatchBroken(event, next_step=error.next_step, kickoff_id=kickoff_id))
        except AirflowTaskTimeout:
            what = "had completed, and its result was unread," if self.task.has_ended else "was still running"
            event = f"Execution {kickoff_id} {what} when execution_timeout passed."
            self._give_up(CutShort(event, kickoff_id=kickoff_id))

    def _give_up(self, end: errors.CrewError) -> NoReturn:
        task, limit = self.task, self.given.time_limit
        end = task.unwanted or end  # Airflow lets the task go on until it kills it
        if isinstance(end, errors.WaitedTooLong) and limit and limit.total_seconds() < self.given.timeout:
            end = CutShort(end.event, kickoff_id=end.kickoff_id)
        if isinstance(end, errors.WaitedTooLong) and not task.has_ended and task.cancels_on("timeout"):
            end = task.cancelled(end)
        if task.has_ended:  # only the wait for its result has ended
            end = end.replace(cost=Cost.ENDED)
        usage = getattr(end, "usage", None)
        self._count_end(_METRICS.get(type(end), "broken"), getattr(end, "execution_time", None), usage)
        if usage:  # that of a completed execution is in the return value
            about = {"kickoff_id": end.kickoff_id, "try_number": task.ti.try_number}
            spent = {**without_reserved_keys(usage), **about}
            task.push_xcom(USAGE, spent, what=f"Token usage of execution {end.kickoff_id}")
        end_wait(task, end)

    def _read(self, end: WatchEnd, **changes: Any) -> dict[str, Any]:
        """Poll for a result that the trigger did not return, despite a short outage or a passed deadline."""
        given = self.given
        deadline = max(end.deadline, time.time() + (given.max_outage or given.timeout))
        rules = self.rules(deadline, exists=True, **changes)
        if end.completed:
            self.task.kickoff_id = end.kickoff_id
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
        task = self.task
        if task.record and not task.has_ended:
            task.record.update(kickoff_id=task.kickoff_id, end="completed")
            task.waits_again = RETRY_READS if task.record.is_shared else task.waits_again
        task.has_ended = True

    def _count(self, polls: Polls) -> None:
        """Count the polls of the execution in the metrics."""
        self.task.measure("polls", polls.all)
        self.task.measure("failed_polls", polls.failed)
        self.task.measure("execution.paused", polls.paused)

    def _count_end(self, end: str, execution_time: float | None, usage: Mapping[str, Any] | None) -> None:
        """Count the end of the execution and its tokens, and record its duration if the crew reports it."""
        self.task.measure(f"execution.{end}")
        if execution_time is not None:
            self.task.measure("execution.duration", seconds=execution_time)
        for name in ("prompt", "completion", "total"):
            if isinstance(count := (usage or {}).get(f"{name}_tokens"), int) and count > 0:
                self.task.measure(f"tokens.{name}", count)

    def _defer(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory, *, asked: bool) -> NoReturn:
        task, given, now = self.task, self.given, time.time()
        kept = memory.handed_over()
        # A user's answer resumes the task without an event of the trigger.
        carried = {"deadline": rules.deadline, "memory": kept} if asked else {}
        task.carry_outlet_extras()
        raise TaskDeferred(
            trigger=CrewExecutionTrigger(
                kickoff_id,
                given.crew_conn_id,
                rules=asdict(rules),
                token_type=given.token_type,
                cancel_on_kill=task.cancels_on("kill"),
                deferred_at=now,
                memory=kept,
                log_output=may_log_output(task),
                asked=asked,
            ),
            method_name="execute_complete",
            kwargs={**task.carried, "try_number": task.ti.try_number, **carried},
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


class SensorWait(Wait):
    """
    Wait of a sensor, which knows only the kickoff ID of its execution.

    :param next_kwargs: Values with which Airflow resumes the sensor after a deferral. ``None`` if it starts.
    """

    def __init__(self, task: RunningTask, next_kwargs: Mapping[str, Any] | None) -> None:
        super().__init__(task)
        task.waits_again = "A retry, or clearing this task, waits for the same execution."
        self._next_kwargs = next_kwargs or {}
        self._end = read_event(self._next_kwargs.get("event"))
        self._kickoff_id = self._given_kickoff_id()
        self._seen = SeenBefore(task.context, self._kickoff_id)

    def origin(self) -> dict[str, Any]:
        """Return the facts about the kickoff. The upstream task may have started the execution just now."""
        return {"kicked_off_at": time.time(), "exists": self._seen.exists}

    def note_seen(self, memory: WatchMemory) -> None:
        """Store that the execution exists once the service knows it, so a later NOT FOUND means unknown."""
        if memory.seen and not self._seen.exists:
            self._seen.keep(memory)

    def begin(self) -> dict[str, Any]:
        """Wait in the worker or the triggerer, and return the result."""
        self._check()
        self.task.push_link(self._kickoff_id)
        return self.result(self._kickoff_id)

    def poll_or_reschedule(self) -> dict[str, Any]:
        """Poll once per process. On Airflow 3.3 and later, the state of the watch is stored between pokes."""
        self._check()
        self.task.push_link(self._kickoff_id)
        seen, ti = self._seen, self.task.ti
        began = (ti.get_first_reschedule_date(self.task.context) or ti.start_date).timestamp()
        memory = seen.recall()
        origin = {"kicked_off_at": began}
        if not seen.lasts:  # without a store, each poke starts a new watch
            origin, memory = {}, WatchMemory(began, said_at=time.time())
        with self.polling(self._kickoff_id, self.rules(began + self.given.timeout, **origin), memory) as poller:
            step = poller.poll()
            # Without a store, keep polling in this process while only a quick next poll can settle the doubt.
            while not seen.lasts and (step.renew_token or poller.watch.is_in_doubt):
                poller.pause(step)
                step = poller.poll()
        if step.completed:
            return self.finish(step.completed.result())
        seen.keep(poller.watch.memory)
        # Without a store, every "unknown" looks like the first one, so polling sooner does not help.
        is_at_leisure = not seen.lasts and "unknown" in poller.watch.memory.troubles
        least = LONGEST_INTERVAL if is_at_leisure else MIN_DEFERRAL_SECONDS
        pause = timedelta(seconds=max(step.poll_again_in, least))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def end(self) -> dict[str, Any]:
        """Return the result after a deferral."""
        next_kwargs, end = self._next_kwargs, self._end
        if versions.resumed_with_old_error(next_kwargs, self.task.ti) or versions.lacks_event(next_kwargs):
            return self.begin()
        if option := chosen_option(next_kwargs.get("event")):
            return self.answered(self._kickoff_id, option, next_kwargs)
        if end is None:
            return self.poll_after_all(self._kickoff_id, next_kwargs)
        if end.seen and not end.result:
            self.note_seen(WatchMemory(time.time(), seen=True))
        return self.resume(end)

    def _given_kickoff_id(self) -> str:
        task, kickoff_id = self.task, self.task.operator.kickoff_id
        if is_nothing(kickoff_id) and self._end:
            return self._end.kickoff_id  # the kickoff task may have been cleared since the deferral
        if type(kickoff_id) is int:  # not isinstance, because True is an int
            kickoff_id = str(kickoff_id)  # native rendering turns a numeric kickoff ID into an int
        if not isinstance(kickoff_id, str) or is_nothing(kickoff_id):
            template = template_text(task.operator.templates.get("kickoff_id"), kickoff_id)
            error = errors.InvalidKickoffId(
                f"kickoff_id {kickoff_id!r} is not a kickoff ID. Its template: {template}.",
                cost=Cost.UNKNOWN,
                next_step="Check what the kickoff task returned, and clear this task. After a mapped kickoff "
                "task, map the sensor: .expand(kickoff_id=kickoff.output).",
            )
            end_wait(task, error)
        try:
            return checked_kickoff_id(kickoff_id)
        except errors.InvalidKickoffId as error:
            end_wait(task, error.replace(cost=Cost.UNKNOWN))

    def _check(self) -> None:
        """Reject an unusable output type or connection before a long wait."""
        try:
            self.task.check_connection()
            check_type(self.given)
        except (errors.InvalidOutputType, errors.InvalidSettings) as error:
            end_wait(self.task, error.replace(cost=Cost.UNKNOWN))


_KEY = "crew_watch"


class SeenBefore:
    """
    State of a sensor between pokes and attempts, stored on Airflow 3.3 and later.

    It stores the watch of one attempt and, for all attempts, whether the service has known the execution. Losing
    this state never fails the task.
    """

    def __init__(self, context: Any, kickoff_id: str) -> None:
        self._store: Any = context.get("task_state_store")
        self.lasts = self._store is not None
        """Whether the next process can read the state of this one."""
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}
        self._kept: dict[str, Any] = {}
        try:
            match self._store and self._store.get(_KEY):
                case {"try": {"kickoff_id": known}, "seen": {}} as kept if known == kickoff_id:
                    self._kept = kept
        except Exception as error:  # noqa: BLE001
            warn(log, f"Stored state of the wait is unreadable: {error}")

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
            warn(log, f"State of the wait was not stored for the next process: {error}")
