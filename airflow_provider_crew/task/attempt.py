"""
One attempt of a task: its execution, from the kickoff or the reattachment to the result.

An operator creates an Attempt and calls its methods in order; ``end()`` turns the exception that ends the attempt
into the one that Airflow gets. ``decide()`` says whether an execution may be started, ``verdict()`` how a task
ends.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.models import Completed, Failed
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.client.wording import in_all
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.task.ask import People
from airflow_provider_crew.task.earlier import earlier, reattach
from airflow_provider_crew.task.output import Output
from airflow_provider_crew.task.record import Record, callbacks_of, fingerprint, kickoff_id_left_by
from airflow_provider_crew.task.result import RESULT, RETURN_VALUE, report, storable, value_of
from airflow_provider_crew.task.stop import UNWATCHED, Stop, as_cut_short, shielded
from airflow_provider_crew.task.task import Task, reject_nothing
from airflow_provider_crew.task.verdict import Facts, Verdict, verdict
from airflow_provider_crew.task.wait import Plan, Wait, note_end_of_deferral, trigger_failed
from airflow_provider_crew.triggers import events


class Attempt:
    """
    One attempt of a task in the current process.

    :param next_kwargs: Values with which Airflow resumes the task after a deferral. ``None`` if it starts.
    """

    wait_class: type[Wait] = Wait
    people_class: type[People] = People

    def __init__(self, task: Task, *, next_kwargs: Mapping[str, Any] | None = None, **facts: Any) -> None:
        now, told = task.ti.try_number, next_kwargs or {}
        # Airflow keeps the event of an attempt that was cleared after it had resumed, and 3.1 also for a retry
        # (apache/airflow#56704).
        is_stale = "event" in told and told.get("try_number", now) != now
        self.task = task
        self.next_kwargs = None if is_stale else next_kwargs
        self.event: events.WatchEnd | None = events.read_event((self.next_kwargs or {}).get("event"))
        self.facts = Facts(
            phase="before" if self.next_kwargs is None else "waiting",
            rejects_misfits=task.options.on_invalid_output == "fail",
            meta=task.meta,
            where=(task.ti.dag_id, task.ti.run_id, task.ti.task_id, task.ti.map_index),
            conn_id=task.options.crew_conn_id,
            has_retry=task.retries_left > 0,
            **facts,
        )
        if self.event:
            self.facts.kickoff_id = self.event.kickoff_id
            self.facts.phase = "ended" if self.event.completed else "waiting"
        self.record = Record(task, is_shared=not self.facts.is_sensor)
        self.output = Output(self.record)
        self.stop = Stop(task)
        self.waiting = self.wait_class(task, self.facts, self.record, self.output, self.stop)
        self.waiting.address = (self.next_kwargs or {}).get("address", "")
        self.people = self.people_class(self.waiting, self.next_kwargs)
        self._value: Any = None

    @property
    def kickoff_id(self) -> str:
        """Execution of this attempt. Empty until it is known."""
        return self.facts.kickoff_id if self.facts.phase in {"waiting", "ended"} else ""

    # The story of an attempt, in order.

    def resume(self) -> str | None:
        """Return the kickoff ID with which a deferred task resumes. None for a process that starts an attempt."""
        if self.next_kwargs is None:
            return None
        self.recall()
        ti, event, last = self.task.ti, self.event, self.record.last
        found = event.kickoff_id if event else kickoff_id_left_by(ti) or self.record.last_id
        if not found:
            raise errors.InvalidKickoffId("The kickoff ID of this task is lost.", cost=errors.Cost.RUNNING)
        self._has(found)
        if last:
            self.record.save_kickoff_id(found)
        self.people.recall()
        return found

    def reattach(self) -> str | None:
        """Return the kickoff ID of an earlier attempt's execution. None if this attempt may start one."""
        if not self.record.is_read:
            self.recall()
        self.output.push_link()
        if kickoff_id := earlier(self.record, self.facts, self.output, self.waiting.status):
            self._has(kickoff_id)
            self.output.push_kickoff_id(kickoff_id)
        self.people.expect(kickoff_id)
        return kickoff_id

    def kick_off(self) -> str:
        """
        Send the kickoff once, and return the kickoff ID.

        Compute everything before the intent is stored, because an intent without a kickoff ID is uncertain.
        """
        from airflow_provider_crew.task import send

        task = self.task
        send.reject_retries(task)
        task.check()
        request = send.request_of(task, task.inputs, send.webhook_secret(task), self.record.key)
        reject_nothing("inputs", request.inputs, task.options.given.get("inputs"))
        if listed := send.listed_inputs(task, task.hook.get_conn()):
            for doubt in compare_inputs(request.inputs, listed):
                task.warn(doubt)
        send.count_kickoffs(task.hook, task.ti, task.origin(), task.log, 1)
        kickoff_id = shielded(partial(self._send, request))
        self.output.measure("kickoff.started")
        self.output.push_kickoff_id(kickoff_id)
        self.waiting.heed()
        return kickoff_id

    def result(self) -> dict[str, Any]:
        """Return the result of the execution, from the trigger's event or by polling. Defer if there is none."""
        return self._finish(self._outcome())

    def end(self, error: BaseException) -> BaseException:
        """Return the exception with which the task ends. Cancel the execution first, if that is wanted."""
        facts = self.facts
        try:
            self.people.ended(error)
            if facts.phase == "waiting" and self.kickoff_id:
                error = as_cut_short(error, self.kickoff_id)
                error, execution = self.stop.cancelled_if_wanted(error, self._cancel)
                if isinstance(execution, Completed):
                    self.waiting.note_completion()
            if isinstance(error, errors.UncertainKickoff) or facts.phase == "sending":
                self.output.measure("kickoff.uncertain")
                if not self.stop.is_told():
                    self.record.save_report()
            elif self.kickoff_id:
                self.record.save_end(self.kickoff_id, error)
            facts.next = self.record.next
            end = verdict(error, facts)
            if not isinstance(error, AirflowSkipException):
                self._record_end(end)
        except BaseException:  # noqa: BLE001 - execution_timeout, which Airflow would retry
            facts.next = self.record.next
            end = verdict(error, facts)
        return end.exception()

    # Around the story.

    def told_to_end(self) -> None:
        """Do what cannot wait until the attempt notices that Airflow is ending the task, in the signal handler."""
        self.record.save_again()
        self.stop.interrupt()

    def returned(self, value: Any, operator: Any) -> Any:
        """Return the value. If the task still fails, its alerts know that the execution has ended."""
        self._value = value  # Airflow does not pass it to post_execute()
        if self.facts.phase == "ended":  # the author's hooks may fail, or Airflow may not store the value

            def failed(_: Any) -> None:
                self.output.progress.completed(self.kickoff_id, value, is_returned=False)
                self.record.save_completion()

            for kind in ("on_failure_callback", "on_retry_callback"):
                callbacks_of(operator, kind).insert(0, failed)
        return value

    def succeeded(self, operator: Any) -> None:
        """Add the execution to the asset events of the task's outlets, and note the delivery of its result."""
        self.output.add_asset_extras(self.kickoff_id, self._value)
        self.record.save_delivery_on_success(operator)

    def recall(self) -> None:
        """Read the kickoff record of earlier attempts. If it is unreadable, no kickoff may be sent."""
        facts, record, resumes = self.facts, self.record, self.next_kwargs or {}
        is_own = "event" in resumes  # without one, the task was cleared since its deferral
        try:
            record.read(resumes.get("record") if is_own else None)
            if self.next_kwargs is None and (last := record.last) and last.call:
                from airflow_provider_crew.task.send import called

                for kickoff_id in shielded(partial(called, self.task, {last.call: last.kicked_off_at})).values():
                    record.save_kickoff_id(kickoff_id)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            if self.next_kwargs is None:
                raise unread(error) from None
            self.task.warn(f"The kickoff record is unreadable: {error}")
        if not self.event:
            facts.kickoff_id = record.last_id

    def _has(self, kickoff_id: str) -> None:
        """Take note of the execution of this attempt."""
        self.facts.kickoff_id = kickoff_id
        if self.facts.phase != "ended":
            self.facts.phase = "waiting"

    def _send(self, request: KickoffRequest, interrupted: Event) -> str:
        """Send the kickoff, and record its ID. Runs in a thread of its own, which no signal interrupts."""
        from airflow_provider_crew.task.send import kick_off, send

        task, record, facts = self.task, self.record, self.facts
        digest = fingerprint(request.inputs, task.options.kickoff.get("restore_from_state_id"))

        def save_intent() -> None:
            try:
                record.save_intent(task.hook.connection.settings.address, digest, request.call)
            except Exception as error:  # noqa: BLE001 - no error may send an unrecorded kickoff
                event = f"Airflow did not store the kickoff record, so nothing was sent: {in_words(error)}."
                raise CrewTaskError(event) from None
            # If the process is killed from here on, this line is the last in the log.
            task.log.info("Sending the kickoff. If no line follows, an execution may have started.")
            facts.phase, facts.kickoff_id = "sending", ""

        def delete_intent() -> None:
            record.delete_intent()
            facts.phase, facts.kickoff_id = "before", record.last_id

        kickoff = partial(kick_off, task, task.hook.get_conn().kickoff, request, interrupted)
        kickoff_id = send(kickoff, self.stop, interrupted, save_intent=save_intent, delete_intent=delete_intent)
        self._has(kickoff_id)
        record.save_kickoff_id(kickoff_id)
        return kickoff_id

    def _cancel(self) -> Completed | Failed:
        """Ask the crew to cancel the execution. Before that, record it, because the crew may end it late."""
        from airflow_provider_crew.hooks.polling import renewed

        self.record.save_cancelling(is_asked=True)
        address = self.record.last.address if self.record.last else self.waiting.address
        try:
            self.task.hook = renewed(self.task.hook)
            return self.task.hook.cancel(self.kickoff_id, self.waiting.continued_as, address)
        except Exception as error:
            if not isinstance(error, errors.NotCancelled) or error.is_refused:  # not sent, or not taken
                self.record.save_cancelling(is_asked=False)
            raise

    def _outcome(self) -> dict[str, Any]:
        """Return what the crew reports as its result."""
        next_kwargs, event, waiting = self.next_kwargs, self.event, self.waiting
        if next_kwargs is None:
            return waiting.to_end(self.people.plan())
        note_end_of_deferral(self.output, next_kwargs)
        if event:
            return self._outcome_of(event)
        if option := events.chosen_option(next_kwargs.get("event")):
            return waiting.to_end(self.people.chose(option, next_kwargs))
        if events.lacks_event(next_kwargs):  # the task was cleared during its deferral
            reattach(self.record)
            return waiting.to_end(self.people.plan())
        return self._outcome_after_all(next_kwargs)

    def _outcome_of(self, event: events.WatchEnd) -> dict[str, Any]:
        """Return the result after the trigger has fired."""
        self.output.progress.heard(event.progress)
        plan = Plan(memory=event.memory, deadline=event.deadline)
        if isinstance(event.error, errors.HumanInputNeeded):
            return self.waiting.to_end(self.people.ask(event, plan))
        if event.error:
            # After these, the execution may run on, and end while the task waits for a worker.
            if isinstance(event.error, errors.LostContact | errors.WaitedTooLong | errors.ExecutionUnknown):
                rules = self.waiting.rules(time.time() + self.task.options.timeout)
                with suppress(errors.ExecutionUnknown):  # no news
                    return self.waiting.once(event.error, rules)
            raise event.error
        if event.too_large:  # a running execution may have a large status as well, so the task may defer again
            again = {"first_poll_at": time.time() + events.LARGE_STATUS_INTERVAL}
            return self.waiting.to_end(replace(plan, rules=again))
        # The crew has just reported the execution, so the grace period after a kickoff applies.
        return event.result or self.waiting.read(event, kicked_off_at=time.time())

    def _outcome_after_all(self, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once if the trigger failed, or if no triggerer ended the wait in time."""
        task, lost = self.task, trigger_failed(self.task, next_kwargs, "the execution", kickoff_id=self.kickoff_id)
        rules = self.waiting.rules(time.time() + task.options.timeout)
        if events.trigger_timed_out(next_kwargs):
            task.log.warning("No triggerer ended the wait for execution %s in time.", self.kickoff_id)
            rules = replace(rules, deadline=time.time(), limit=UNWATCHED)
        return self.waiting.once(lost, rules)

    # The end.

    def _finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Report a completed execution, and return the result in the form that the task returns."""
        task, output, options = self.task, self.output, self.task.options
        self.waiting.note_completion()
        took, usage = result.get("execution_time"), result.get("usage")
        output.count_end(None, took, usage)
        output.push_usage(self.kickoff_id, usage)
        output.trace(self.kickoff_id, took, usage)
        output.progress.completed(self.kickoff_id, result, is_returned=options.do_xcom_push)
        misfit = f" ({RESULT} if it does not match output_type)" if options.output_type is not None else ""
        where = f"in XCom {RETURN_VALUE}{misfit}" if options.do_xcom_push else "in the crew's dashboard"
        shows_output = options.log_output and is_on("log_output", task.log)
        report(result, task.log, shows_output=shows_output, where=where)
        try:
            return value_of(result, self.kickoff_id, options.output_type)
        except errors.InvalidOutput:
            if options.do_xcom_push:  # it was billed
                output.push(RESULT, storable(result), what=f"The result of execution {self.kickoff_id}")
            raise

    def _record_end(self, end: Verdict) -> None:
        """Store the end for the next attempt, push it for the Crew tab, and count it."""
        failure, output, kickoff_id = end.failure, self.output, self.kickoff_id
        if kickoff_id:
            usage, took = (getattr(failure, name, None) for name in ("usage", "execution_time"))
            if not isinstance(failure, errors.InvalidOutput):  # counted as completed
                output.count_end(failure, took, usage)
                output.push_usage(kickoff_id, usage)
                if failure.cost is errors.Cost.ENDED:
                    output.trace(kickoff_id, took, usage, failure)
                for line in in_all({"execution_time": took, "usage": usage}) if usage else ():
                    self.task.log.info("Crew: %s", line)
        elif not isinstance(failure, errors.UncertainKickoff):
            output.measure("execution.broken" if self.facts.is_sensor else "kickoff.not_taken")
        output.show_end(kickoff_id or failure.kickoff_id, end)


def unread(error: Exception) -> CrewTaskError:
    """Return the error of an attempt that cannot read what earlier ones have stored."""
    return CrewTaskError(f"Airflow did not return the kickoff record, so nothing was sent: {in_words(error)}.")
