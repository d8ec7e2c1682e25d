"""
One attempt of a task: its execution, from the kickoff or the reattachment to the result.

An operator creates an Attempt and calls its methods in order; ``end()`` turns the exception that ends the attempt
into the one that Airflow gets. ``decide()`` says whether an execution may be started, ``verdict()`` how a task
ends. No other module sends kickoffs for tasks.
"""

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from threading import Event, current_thread, main_thread
from typing import Any, Literal, NoReturn, TypeVar

from airflow.providers.common.compat.sdk import AirflowSkipException, AirflowTaskTimeout, TaskDeferred, conf

from airflow_provider_crew import api_server, versions
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import CrewError, UncertainKickoff
from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.client.options import (
    MAX_OUTAGE,
    NOT_FOUND_GRACE,
    TIMEOUT,
    KickoffOptions,
    OnInvalidOutput,
    OnResponseTimeout,
    OnUncertainKickoff,
)
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.text import in_words, one_line, quoted, warn
from airflow_provider_crew.client.watch import Step, WatchRules, WatchState
from airflow_provider_crew.client.wording import (
    after_cancelling,
    execution_failed,
    in_all,
    result_out_of_reach,
    unknown_elsewhere,
)
from airflow_provider_crew.exceptions import CrewTaskError, CutShort, EndedByAirflow, OtherInputs
from airflow_provider_crew.hooks.connection import TokenType, load_secret
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import Poller
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.task.checks import check_inputs, count_kickoffs
from airflow_provider_crew.task.decide import Decision, PolledStatus, decide
from airflow_provider_crew.task.progress import TaskProgress
from airflow_provider_crew.task.record import (
    KEY,
    KICKOFF_ID,
    ROW,
    Record,
    fingerprint,
    kickoff_id_left_by,
    was_rescheduled,
    xcom_keys_left_behind,
)
from airflow_provider_crew.task.result import (
    RESULT,
    RETURN_VALUE,
    USAGE,
    adapter_of,
    may_log_output,
    report,
    storable,
    value_of,
    without_reserved_keys,
)
from airflow_provider_crew.task.shielded import shielded
from airflow_provider_crew.task.verdict import Earlier, Facts, Phase, Verdict, verdict, while_waiting
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import (
    DEFERRAL,
    HAS_ANSWERED,
    STOP_WAITING,
    WatchEnd,
    chosen_option,
    lacks_event,
    read_event,
    trigger_timed_out,
)

T = TypeVar("T")

_NO_RESPONSE = "An earlier attempt sent a kickoff and ended before the response, so an execution may have started."
_ONE_ATTEMPT_TOO_MANY = (
    "This attempt exceeds the task's retries: Airflow lost the process of the previous attempt, or the task was "
    "cleared while it ran. That attempt may have started an execution."
)
# Rendered value of a template that names a task without a result, or a task that does not exist.
_NOTHING = frozenset({"", "None"})
_SHOWN = 300
# Values of a result in the asset event extras, besides the kickoff ID.
_EXTRAS = ("usage", "execution_time")
# Seconds between two looks at whether Airflow is ending the task. It kills the process 5 seconds after SIGTERM.
_LOOK = 0.5
# Seconds before execution_timeout at which a wait ends, so that the task can say so or cancel the execution.
_TIME_TO_END = 2.0
_TIME_TO_CANCEL_AT_TIMEOUT = 10.0
# Share of a short execution_timeout that is reserved for that.
_LARGEST_SHARE = 0.1
# Seconds after the deadline at which Airflow resumes a task that no triggerer has resumed.
_BACKSTOP = 60.0
# Seconds between two polls of a status that is too large for a triggerer. Each starts a worker.
_LARGE_STATUS_INTERVAL = 300.0
# Characters of the crew's last output in a request under Required Actions.
_LONGEST_DRAFT = 2_000
# Answers that such a request lists.
_MOST_CHOSEN = 3
# Ends in the metrics. All others count as "broken".
_METRICS: dict[type[CrewError], str] = {
    errors.ExecutionFailed: "failed",
    errors.ExecutionStopped: "stopped",
    errors.ExecutionCancelled: "timeout",
    errors.ExecutionUnknown: "unknown",
    errors.WaitedTooLong: "timeout",
    errors.WaitStopped: "timeout",
    CutShort: "timeout",
    errors.LostContact: "lost",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    Arguments of an operator, as an attempt needs them. See the operators for their meaning.

    :param given: Templated arguments before they were rendered, by name.
    :param compute_inputs: Returns the inputs of a kickoff. Not called by an attempt that reattaches.
    """

    crew_conn_id: str
    token_type: TokenType | None = None
    cancel_on_kill: bool | None = None
    cancel_on_timeout: bool | None = None
    do_xcom_push: bool = True
    execution_timeout: timedelta | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    # Of a kickoff
    compute_inputs: Callable[[], Any] = dict
    inputs: Any = None
    kickoff: KickoffOptions = field(default_factory=KickoffOptions)
    webhook_conn_id: str | None = None
    validate_inputs: bool = True
    on_uncertain_kickoff: OnUncertainKickoff = "fail"
    durable: bool = True
    abandon_unknown_after: float | None = None
    # Of a wait
    deferrable: bool = False
    poll_interval: float | None = None
    timeout: float = TIMEOUT
    max_outage: float | None = MAX_OUTAGE
    human_input: bool | None = False
    log_output: bool = True
    output_type: object = None
    on_invalid_output: OnInvalidOutput = "fail"
    # Of answers from Airflow
    response_timeout: float | None = None
    on_response_timeout: OnResponseTimeout = "leave"
    notifiers: Sequence[Callable[[Any], object]] = ()
    assigned_users: Sequence[Mapping[str, str]] = ()


def is_nothing(value: Any) -> bool:
    """Whether an option has no value, or the text that Jinja renders no value to."""
    return value is None or (isinstance(value, str) and value.strip() in _NOTHING)


class _PollInterrupted(BaseException):
    """Raised by the signal handler of Airflow during a poll of the crew."""


class Attempt:
    """
    One attempt of a task in the current process.

    :param options: Arguments of the operator, after rendering.
    :param context: Airflow's context of the task.
    :param log: Logger of the task.
    :param next_kwargs: Values with which Airflow resumes the task after a deferral. ``None`` if it starts.
    :param is_told_to_end: Whether Airflow is ending the task.
    """

    is_sensor = False
    record_key = KEY
    trigger_class: type[CrewExecutionTrigger] = CrewExecutionTrigger
    continued_as = ""
    """Another ID of the execution, from the crew's response to an answer."""

    def __init__(
        self,
        options: Options,
        context: Any,
        log: Any,
        *,
        next_kwargs: Mapping[str, Any] | None = None,
        is_told_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self.options = options
        self.context = context
        self.ti: Any = context["ti"]
        self.log = log
        is_stale = next_kwargs is not None and versions.resumed_with_old_error(next_kwargs, self.ti)
        self.next_kwargs = None if is_stale else next_kwargs
        self.event: WatchEnd | None = read_event((self.next_kwargs or {}).get("event"))
        self.phase: Phase = "before" if self.next_kwargs is None else "waiting"
        if self.event and self.event.completed:
            self.phase = "ended"
        self.kickoff_id = ""
        """Execution of this attempt. Empty until it is known."""
        self.record: Record | None = None
        """Kickoff record. ``None`` for a sensor."""
        self.kept: dict[str, Any] = {}
        """Plain data for the process that resumes, besides the event."""
        self.progress = TaskProgress(self.ti, log, self.started_at)
        names = {name: value for name, value in self._origin().items() if name != "try_number"}
        self._meta = json.dumps(names) if options.kickoff.get("meta") is None else ""
        """Part of the meta that names the task, as JSON. Empty if the DAG author has set another."""
        self._is_told_to_end = is_told_to_end
        self._has_heeded = self._is_marked = False
        self._is_polling = False
        self._began = time.monotonic()
        self._has_other_inputs = False
        self._has_abandoned = False
        """Whether this attempt has abandoned the execution of an earlier one, and will start another."""
        self._is_blind = False
        """Whether the kickoff record is unreadable."""
        self._traced_id: str | None = None
        """Execution whose end an earlier attempt has seen, and so has traced."""
        self._link: str | None = None
        self._value: Any = None

    # The story of an attempt, in order.

    def resume(self) -> str | None:
        """Return the kickoff ID with which a deferred task resumes. None for a process that starts an attempt."""
        self._recall()
        if self.next_kwargs is None:
            return None
        found = self.event.kickoff_id if self.event else kickoff_id_left_by(self.ti) or self._recorded_id
        if versions.resumed_with_old_event(self.next_kwargs, self.ti) and self._is_unwanted(found):
            self.next_kwargs, self.event, self.phase = None, None, "before"
            self._recall()  # a kickoff must not tolerate an unreadable record
            return None
        if not found:
            raise errors.InvalidKickoffId("The kickoff ID of this task is lost.", cost=errors.Cost.RUNNING)
        self._record.save_kickoff_id(self._has(found))
        return found

    def _is_unwanted(self, kickoff_id: str | None) -> bool:
        """Whether a retry has to start another execution than that of an earlier attempt's event (Airflow 3.1)."""
        if self.options.on_invalid_output == "retry" and self.event and self.event.result:
            try:
                value_of(self.event.result, kickoff_id or "", self.options.output_type, self.log)
            except errors.InvalidOutput:
                return True
        return False

    def reattach(self) -> str | None:
        """Return the kickoff ID of an earlier attempt's execution. None if this attempt may start one."""
        self.push_name()
        self.push_link()
        kickoff_id = self._carry_out(self._decide())
        return kickoff_id and self._push_kickoff_id(kickoff_id)

    def kick_off(self) -> str:
        """
        Send the kickoff once, and return the kickoff ID.

        Compute everything, store the intent, look whether the task may still send, send, and store the ID. A crash
        in between leaves a trace: the next attempt reports an uncertain kickoff and starts nothing.
        """
        self._check_options()
        if self.options.output_type is not None:
            adapter_of(self.options.output_type)
        request = self._request()
        check_inputs(self.hook, request, self.log, validate=self.options.validate_inputs)
        count_kickoffs(self.hook, self.ti, self._origin(), self.log, 1)
        self._warn_of_retries()
        digest = fingerprint(request.inputs, self.options.kickoff.get("restore_from_state_id"))
        self.kickoff_id = shielded(lambda interrupted: self._send_once(request, digest, interrupted))
        self.measure("kickoff.started")
        self._push_kickoff_id(self.kickoff_id)
        self.heed()
        return self.kickoff_id

    def result(self) -> dict[str, Any]:
        """Return the result of the execution, from the trigger's event or by polling. Defer if there is none."""
        next_kwargs, self.next_kwargs = self.next_kwargs, None
        if next_kwargs is None:
            return self._finish(self.wait())
        # The trigger has pushed it before its event. A failed trigger leaves no kwargs of the task.
        if not self.event and (next_kwargs.get("cancels_on_kill") or "error" in next_kwargs):
            self.push_xcom(DEFERRAL, None, what="The end of the deferral")
        self.kept["chosen"] = next_kwargs.get("chosen", [])
        if self.event:
            return self._resumed_by(self.event)
        if option := chosen_option(next_kwargs.get("event")):
            return self._answered(option, next_kwargs)
        if lacks_event(next_kwargs):  # the task was cleared during its deferral
            self._record.save_reattached()
            self._log_reattached(self.kickoff_id)
            return self._finish(self.wait())
        return self._finish(self._poll_after_all(next_kwargs))

    def deliver(self, value: Any) -> Any:
        """
        Return the task's return value.

        If attempts share no kickoff record, push the value to XCom first, while no error may be retried. A later
        failure to push would be retried, and start a second execution.
        """
        if self.record and not self.record.is_shared and self.ti.max_tries and self.options.do_xcom_push:
            self.ti.xcom_push(key=RETURN_VALUE, value=value)
        self._value = value  # Airflow does not pass it to post_execute()
        return value

    def end(self, error: BaseException) -> BaseException:
        """Return the exception with which the task ends. Cancel the execution first, if that is wanted."""
        try:
            error = self._cancelled_if_wanted(error)
            is_reported = self._report_if_uncertain(error)
            end = verdict(error, self.facts(is_reported=is_reported))
            if not isinstance(error, AirflowSkipException):
                self._record_end(end)
        except BaseException:  # noqa: BLE001 - execution_timeout, which Airflow would retry
            end = verdict(error, self.facts())
        return end.exception()

    def _report_if_uncertain(self, error: BaseException) -> bool:
        """Record an uncertain kickoff as reported, so that clearing the task starts another execution."""
        if not isinstance(error, UncertainKickoff) and self.phase != "sending":
            return False
        self.measure("kickoff.uncertain")
        return not self._is_told_to_end() and self._record.save_report()

    def told_to_end(self) -> None:
        """Do what cannot wait until the attempt notices that Airflow is ending the task, in the signal handler."""
        if self.record:
            self.record.save_again()
        if self._is_polling and current_thread() is main_thread():
            self._is_polling = False
            raise _PollInterrupted

    # What is known.

    @property
    def started_at(self) -> float:
        """Start time of this attempt."""
        started_at = self.ti.start_date
        return float(started_at.timestamp()) if started_at else time.time()

    @cached_property
    def hook(self) -> CrewHook:
        """Hook for the connection, created at first use. A task whose trigger returns the result needs none."""
        self._check_option("crew_conn_id", self.options.crew_conn_id, errors.InvalidSettings, is_set=True)
        options = self.options
        return CrewHook(
            options.crew_conn_id, token_type=options.token_type, webhook_conn_id=options.webhook_conn_id
        )

    @property
    def _record(self) -> Record:
        if self.record is None:
            raise AssertionError("a sensor has no kickoff record")
        return self.record

    def facts(self, *, is_reported: bool = False) -> Facts:
        """Return the facts for the verdict on this attempt."""
        record, options = self.record, self.options
        earlier: Earlier = self._earlier() if self.phase == "before" and record else "none"
        known = self.event.kickoff_id if self.event else self._recorded_id
        return Facts(
            phase=self.phase,
            kickoff_id=self.kickoff_id or known or "",
            reattachable=bool(record and record.is_shared),
            earlier=earlier,
            may_start_twice=options.on_uncertain_kickoff == "retry",
            rejects_misfits=options.on_invalid_output == "fail",
            is_reported=is_reported,
            meta=self._meta,
            has_retry=not self._is_marked and self.ti.try_number <= (self.ti.max_tries or 0),
            is_sensor=self.is_sensor,
        )

    @property
    def _recorded_id(self) -> str | None:
        last = self.record and self.record.last
        return last.kickoff_id if last else None

    def _earlier(self) -> Earlier:
        """Return the state of the execution of an earlier attempt."""
        record, last = self._record, self._record.last
        if self._is_blind:
            return "unreadable"
        if record.running:
            return "abandoned" if self._has_abandoned else "running"
        if last and last.end and self._decision() is Decision.REATTACH:
            return "completed"
        chooses_twice = self._chooses_twice and self.ti.try_number > 1
        is_forgotten = not record.is_shared and (chooses_twice or record.may_follow_a_clear)
        return "may have started" if is_forgotten or (last and not last.end) else "none"

    @property
    def _chooses_twice(self) -> bool:
        """Whether the DAG author prefers a second execution to a failure."""
        return self.options.on_uncertain_kickoff == "retry"

    # Before the kickoff.

    def _recall(self) -> None:
        """Read the kickoff record of earlier attempts. If it is unreadable, no kickoff may be sent."""
        try:
            self.record = self._read_record(wanted=self.options.durable)
            self._is_blind = False
            self._traced_id = self.record.last.kickoff_id if self.record.last and self.record.last.end else None
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            self.record = self._read_record(wanted=False)
            self._is_blind = True
            if self.next_kwargs is None:
                event = f"Airflow did not return the kickoff record, so nothing was sent: {in_words(error)}."
                raise CrewTaskError(event) from None
            self.warn(f"The kickoff record is unreadable: {error}")

    def _read_record(self, *, wanted: bool) -> Record:
        may_start_twice, meta = self._chooses_twice, self._meta
        return Record(self.context, wanted=wanted, may_start_twice=may_start_twice, meta=meta, key=self.record_key)

    def _decide(self) -> Decision:
        """Return the decision about the execution of an earlier attempt. Poll it if the decision depends on it."""
        record, last = self._record, self._record.last
        if not record.is_shared:
            self._reject_extra_attempt()
        if record.may_be_deleted:
            self.warn(
                "This task may have been cleared without 'Keep task state and resume', which deletes its kickoff "
                "record. This attempt may start an execution, although one of an earlier attempt may still be "
                "running and billed."
            )
        if last and last.fingerprint:
            is_mapped = self.ti.map_index >= 0
            now = self._fingerprint(required=record.is_of_this_attempt or (is_mapped and record.was_cleared))
            self._has_other_inputs = now is not None and now != last.fingerprint
        decision = self._decision()
        if decision is not Decision.ASK or not record.running:
            return decision
        status = self._poll_earlier(record.running)
        decision = self._decision(status)
        if decision is Decision.REATTACH and status == "unknown":
            self.warn(
                f"Execution {record.running} of an earlier attempt is unknown to the crew, as it is while a crew "
                "waits for human input. It may be running and billed."
            )
        return decision

    def _decision(self, status: PolledStatus | None = None) -> Decision:
        record, last, limit = self._record, self._record.last, self.options.abandon_unknown_after
        return decide(
            last,
            status,
            cleared=record.was_cleared,
            same_attempt=record.is_of_this_attempt,
            chooses_twice=self._chooses_twice,
            is_old=last is not None and limit is not None and time.time() - last.kicked_off_at > limit,
            is_mapped=self.ti.map_index >= 0,
            other_inputs=self._has_other_inputs,
        )

    def _carry_out(self, decision: Decision) -> str | None:  # noqa: C901 - a row for each decision
        """Return the kickoff ID to reattach to. None if this attempt may start an execution."""
        record, last = self._record, self._record.last
        kickoff_id = last.kickoff_id if last else None
        if kickoff_id:
            self.measure("resumable_job.reconnect_attempt")
        match decision:
            case Decision.REATTACH if kickoff_id:
                if self._has_other_inputs:
                    self.warn(
                        f"Execution {kickoff_id} was started with other inputs than the task has now. The task "
                        "returns the result of that execution."
                    )
                record.save_reattached()
                self._log_reattached(self._has(kickoff_id))
                self.measure("resumable_job.reconnect_success")
                return kickoff_id
            case Decision.KICK_OFF_BY_CHOICE:
                is_cleared = record.was_cleared and last and last.reported
                why = "the task was cleared" if is_cleared else "on_uncertain_kickoff='retry'"
                self.warn(f"{_NO_RESPONSE} This attempt may start another, because {why}. Two may be billed.")
            case Decision.KICK_OFF_AFTER_EXPIRY:
                self._has_abandoned = True
                self.warn(
                    f"Execution {kickoff_id} of an earlier attempt is unknown to the crew, and older than "
                    "abandon_unknown_after. The task was cleared, so this attempt may start another. If the "
                    "earlier one still waits for human input, two are billed."
                )
            case Decision.KICK_OFF_AFTER_END:
                self.log.info(
                    "Execution %s of an earlier attempt has ended, so this one may start another.", kickoff_id
                )
            case Decision.KICK_OFF:
                self.measure("resumable_job.fresh_submit")
            case Decision.FAIL_STOPPED:
                event = f"Execution {kickoff_id} of an earlier attempt was stopped in the crew's dashboard."
                raise errors.ExecutionStopped(event, kickoff_id=kickoff_id or "")
            case Decision.FAIL_OTHER_INPUTS:
                raise OtherInputs(
                    f"Execution {kickoff_id} may be running with the inputs of another row or item. It was "
                    f"started by task {self.ti.task_id}, map index {self.ti.map_index}, of run {self.ti.run_id} "
                    f"of {self.ti.dag_id}.",
                    kickoff_id=kickoff_id or "",
                )
            case _:  # no decision other than those above may start an execution
                raise UncertainKickoff(_NO_RESPONSE)
        return None

    def _log_reattached(self, kickoff_id: str) -> None:
        self.log.info("Reattached to execution %s, which an earlier attempt started.", kickoff_id)

    def _poll_earlier(self, kickoff_id: str) -> PolledStatus:
        """Return the status of an earlier attempt's execution, and record its end."""
        record = self._record
        try:
            self.hook.get_conn()
            execution = self._interruptibly(self.hook.status, kickoff_id)
        except errors.ExecutionNotFound as error:
            kicked_off_at = record.last.address if record.last else ""
            if kicked_off_at and kicked_off_at != error.address:
                raise unknown_elsewhere(kickoff_id, kicked_off_at, error.address) from None
            return "unknown"
        except errors.CallError as error:
            self.warn(f"The status of execution {kickoff_id} is unreadable. {error.event}")
            return "unreadable"
        match execution.status:
            case "completed":
                record.update(end="completed")
                return "completed"
            case "error":
                failure = execution_failed(execution, "")
                end: Literal["failed", "stopped"]
                end = "stopped" if isinstance(failure, errors.ExecutionStopped) else "failed"
                record.update(end=end)
                self._trace(kickoff_id, failure.execution_time, failure.usage, failure)
                return end
        return "running"

    def _reject_extra_attempt(self) -> None:
        """Reject an extra attempt that Airflow starts by itself, if attempts do not share a kickoff record."""
        ti = self.ti
        # The attempt had pushed a kickoff ID, which Airflow has just deleted.
        if was_rescheduled(ti) and KICKOFF_ID in xcom_keys_left_behind(ti):
            raise UncertainKickoff(
                "This attempt has already started an execution. Airflow restarted the attempt because it could "
                "not load the DAG.",
                cost=errors.Cost.RUNNING,
            )
        if ti.try_number <= ti.max_tries + 1:
            return
        if not self._chooses_twice:
            raise UncertainKickoff(_ONE_ATTEMPT_TOO_MANY)
        self.warn(
            f"{_ONE_ATTEMPT_TOO_MANY} This attempt may start another, because on_uncertain_kickoff='retry'. "
            "Two may be billed."
        )

    def _fingerprint(self, *, required: bool) -> str | None:
        """
        Return the fingerprint of this attempt's inputs, or None if it is not known.

        A decorated function is called only if ``required``. Inputs that are not JSON match no earlier kickoff.
        """
        state = self.options.kickoff.get("restore_from_state_id")
        if required:
            try:
                return fingerprint(self._inputs, state)
            except errors.InvalidInputs:
                return ""
        with suppress(Exception):  # only a warning depends on it
            return fingerprint(self._inputs, state) if isinstance(self.options.inputs, Mapping) else None
        return None

    @cached_property
    def _inputs(self) -> Any:
        return self.options.compute_inputs()

    def _check_options(self) -> None:
        """Reject options that render to nothing, before the inputs are computed and anything is sent."""
        _ = self.hook
        for name, value in self.options.kickoff.items():
            self._check_option(name, value, errors.InvalidInputs)
        self._check_option("webhook_conn_id", self.options.webhook_conn_id, errors.InvalidSettings)

    def _check_option(self, name: str, value: Any, kind: type[CrewError], *, is_set: bool = False) -> None:
        """Raise an error if an option was given to the operator, but renders to nothing."""
        template = self.options.given.get(name)
        if is_nothing(value) and (is_set or value is not None or template is not None):
            raise kind(
                f"`{name}` rendered to {value!r:.40}. Template: {self._template(name, value)}. Check that the "
                "task it reads from returned a value."
            )

    def _template(self, name: str, value: Any) -> str:
        """Return a template for a message. An option that was not rendered is its own template."""
        shown = self.options.given.get(name, value)
        return one_line(str(shown), _SHOWN) or repr(shown)

    def _request(self) -> KickoffRequest:
        options, secret_id = dict(self.options.kickoff), self.options.webhook_conn_id
        if options.get("meta") is None:
            options["meta"] = {"airflow": self._origin()}
        secret = load_secret(secret_id) if secret_id else None
        return KickoffRequest.of(self._inputs, webhook_secret=secret, **options)  # type: ignore[arg-type]

    def _origin(self) -> dict[str, Any]:
        """Return the meta of the kickoff. It identifies a lost execution, since the crew lists none."""
        names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
        loop = self.context.get("loop")  # Airflow 3.4
        return {name: getattr(self.ti, name) for name in names} | ({"iteration": loop.index} if loop else {})

    def _warn_of_retries(self) -> None:
        if self._record.is_shared or not self.ti.max_tries:
            return
        why = "Airflow keeps a kickoff record from 3.3 on" if self.options.durable else "durable=False"
        self.warn(
            f"This task has retries, and its attempts do not know of each other ({why}). If it is killed after "
            "the kickoff, a retry starts another execution, which is billed. CrewKickoffOperator with retries=0, "
            "followed by CrewExecutionSensor with retries, prevents that."
        )

    # The kickoff itself. It runs in a thread of its own.

    def _send_once(self, request: KickoffRequest, digest: str, interrupted: Event) -> str:
        kickoff_id = resend(
            lambda: self._send(request, digest, interrupted), only_if_not_started=True, sleep=interrupted.wait
        )
        self._record.save_kickoff_id(self._has(kickoff_id))
        return kickoff_id

    def _send(self, request: KickoffRequest, digest: str, interrupted: Event) -> str:
        """Send the kickoff once. Record it first, and remove the record if it certainly started nothing."""
        record = self._record
        try:
            record.save_intent(self.hook.connection.settings.address, digest)
        except Exception as error:  # noqa: BLE001 - no error may send an unrecorded kickoff
            event = f"Airflow did not store the kickoff record, so nothing was sent: {in_words(error)}."
            raise CrewTaskError(event) from None
        crew = self.hook.get_conn()
        # If the process is killed from here on, this line is the last in the log.
        self.log.info("Sending the kickoff. If no line follows, an execution may have started.")
        try:
            self.look_before_sending("kickoff", interrupted)
            self.phase = "sending"
            return crew.kickoff(request)
        except CrewError as error:
            if not isinstance(error, UncertainKickoff):
                self.phase = "before"
                record.delete_intent()
            raise

    def look_before_sending(self, what: str, interrupted: Event | None = None) -> None:
        """Raise if Airflow is ending the task, or if its time is over. Storing the intent may take minutes."""
        limit = self.options.execution_timeout
        if limit and time.monotonic() - self._began >= limit.total_seconds():
            raise CutShort(f"execution_timeout passed before the {what}.")
        if (interrupted and interrupted.is_set()) or self._is_told_to_end():
            raise CrewTaskError(f"The task was ended before the {what}.")

    def _has(self, kickoff_id: str) -> str:
        """Take note of the execution of this attempt."""
        self.kickoff_id = kickoff_id
        if self.phase != "ended":
            self.phase = "waiting"
        return kickoff_id

    # The wait.

    def heed(self) -> None:
        """
        Raise if Airflow has ended the task and ``cancel_on_kill`` applies.

        On Airflow 3, a task goes on after SIGTERM until Airflow kills it. A task that was cleared reattaches.
        """
        kickoff_id = self.kickoff_id or (self.record and self.record.running)
        if self._has_heeded or not kickoff_id or not self._is_told_to_end():
            return
        self._has_heeded = True
        if self.phase != "ended" and self.cancels_on("kill") and api_server.has_ended(self.ti):
            self._is_marked = True
            event = f"Airflow ended the task while it was waiting for execution {kickoff_id}."
            raise EndedByAirflow(event, kickoff_id=self._has(kickoff_id))
        # Before it reattaches, the verdict adds what is known of the execution of an earlier attempt.
        state = {"waiting": "continues", "ended": "has completed"}.get(self.phase)
        known = f" Execution {kickoff_id} {state}." if state else ""
        told = CrewError(f"Airflow is ending this task.{known}", kickoff_id=kickoff_id)
        self.warn(verdict(told, replace(self.facts(), is_ending=True)).failure.story)

    def _interruptibly(self, poll: Callable[[str], T], kickoff_id: str) -> T:
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
                self.heed()

    def cancels_on(self, event: Literal["kill", "timeout"]) -> bool:
        """Whether to cancel the execution on a kill or a timeout. The connection has the default."""
        name = f"cancel_on_{event}"
        if (own := getattr(self.options, name)) is not None:
            return bool(own)
        with suppress(Exception):  # the next use of the connection raises the error
            return bool(getattr(self.hook.connection, name))
        return False

    def rules(self, deadline: float, **changes: Any) -> WatchRules:
        """Return the rules for polling the execution."""
        options = self.options
        own: dict[str, Any] = {"human_input": bool(options.human_input), "continued_as": self.continued_as}
        known = {"deadline": deadline} | own | self.origin() | changes
        return WatchRules(poll_interval=options.poll_interval, max_outage=options.max_outage, **known)

    def origin(self) -> dict[str, Any]:
        """Return the facts about the kickoff, as fields of WatchRules."""
        last = self.record and self.record.last
        known = {"kicked_off_at": last.kicked_off_at, "address": last.address} if last else {}
        return {"exists": True} | known

    def note_seen(self, memory: WatchState) -> None:
        """Handle the state of the watch after a poll."""

    def deadline(self) -> float:
        """Return the time at which to stop waiting, as a timestamp."""
        deadline, limit = time.time() + self.options.timeout, self.options.execution_timeout
        if limit is None:
            return deadline
        allowed = limit.total_seconds()
        margin = _TIME_TO_CANCEL_AT_TIMEOUT if self.cancels_on("timeout") else _TIME_TO_END
        return min(deadline, self.started_at + allowed - min(margin, allowed * _LARGEST_SHARE))

    def wait(
        self, *, memory: Any = None, asked: bool = False, asks: bool = True, **changes: Any
    ) -> dict[str, Any]:
        """
        Return the result of the execution, or defer until there is one.

        :param memory: State of the watch to continue, as plain data.
        :param asked: Whether a request of the task is open under Required Actions.
        :param asks: Whether the task may create one.
        :param changes: Other rules for the watch.
        """
        last = self.record and self.record.last
        if last and last.end == "completed":
            return self._read(WatchEnd(kickoff_id=self.kickoff_id, completed=True))
        rules = self.rules(changes.pop("deadline", None) or self.deadline(), **changes)
        # Defer only after the execution was found or the grace period is over: a new triggerer does not know.
        defers_at = time.time() + (0.0 if rules.exists or rules.human_input else NOT_FOUND_GRACE)
        poller = self.poller(rules, WatchState.recalled(memory))
        while not (step := poller.poll()).completed:
            memory = poller.watch.memory
            self.note_seen(memory)
            self.heed()
            if self.options.deferrable and (memory.seen or time.time() >= defers_at):
                rules = replace(rules, stops_for_input=asks and not asked and self.may_ask())
                self._defer(rules, memory, asked=asked)
            self.pause(poller, step)
        return step.completed.result()

    def poller(self, rules: WatchRules, memory: WatchState | None = None) -> Poller:
        """Return a poller of the execution. A connection that is missing from the start ends the wait."""
        if not (memory and memory.seen):
            try:
                self.hook.get_conn()
            except errors.InvalidSettings:
                pass  # the watch reads the connection again for a while
            except errors.Unreachable as error:
                event = f"Execution {self.kickoff_id} cannot be polled. {error.event}"
                raise errors.LostContact(event, kickoff_id=self.kickoff_id, lacks_connection=True) from None
        self.progress.is_left_to_trigger = self.options.deferrable
        self.progress.choices = self._while_waiting()["choices"]
        poller = Poller(self.hook, self.kickoff_id, rules, memory, self.progress.saw)
        poller.subject, poller.call = "Crew", self._interruptibly
        return poller

    def _while_waiting(self) -> dict[str, dict[str, str]]:
        """Return the sentences for the Crew tab about a task that waits."""
        return while_waiting(
            is_sensor=self.is_sensor,
            reattachable=bool(self.record and self.record.is_shared),
            cancels=self._trigger_cancels() if self.options.deferrable else self.cancels_on("kill"),
            cancels_at_timeout=self.cancels_on("timeout"),
        )

    def _trigger_cancels(self) -> bool:
        """Whether the trigger cancels the execution if someone marks the deferred task."""
        # In a task loop, a trigger gets the state of the latest iteration, which may not be this one.
        return versions.TRIGGERS_CANCEL and "loop" not in self.context and self.cancels_on("kill")

    def pause(self, poller: Poller, step: Step) -> None:
        """Sleep until the next poll, and look at times whether Airflow is ending the task."""
        poller.pause(step, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
            self.heed()

    def may_ask(self) -> bool:
        """Whether a deferred task asks a user under Required Actions when its crew waits for human input."""
        try:
            wanted = conf.getboolean("crew", "required_actions", fallback=True)
        except Exception as error:  # noqa: BLE001 - an invalid setting must not end the wait
            self.warn(
                "No request will appear under Required Actions, because [crew] required_actions is unreadable: "
                f"{error}"
            )
            return False
        return bool(wanted and versions.HAS_REQUIRED_ACTIONS)

    def _defer(self, rules: WatchRules, memory: WatchState, *, asked: bool) -> NoReturn:
        options, now, kept = self.options, time.time(), memory.handed_over()
        if cancels := self._trigger_cancels():
            self.push_xcom(DEFERRAL, now, what="The time of the deferral, which cancel_on_kill needs,")
        # A user's answer resumes the task without an event of the trigger.
        carried = {"deadline": rules.deadline, "memory": kept} if asked else {}
        self.progress.deferring(self.kickoff_id)
        self.heed()
        raise TaskDeferred(
            trigger=self.trigger_class(
                self.kickoff_id,
                options.crew_conn_id,
                rules=asdict(rules),
                token_type=options.token_type,
                webhook_conn_id=options.webhook_conn_id,
                cancel_on_kill=cancels,
                deferred_at=now,
                memory=kept,
                asked=asked,
                shown=self._while_waiting(),
                **self.trigger_options(),
            ),
            method_name="execute_complete",
            kwargs={**self.kept, "try_number": self.ti.try_number, "cancels_on_kill": cancels, **carried},
            timeout=timedelta(seconds=max(rules.deadline - now, 0.0) + _BACKSTOP),
        )

    def trigger_options(self) -> dict[str, Any]:
        """Return further arguments of the trigger."""
        return {}

    def _resumed_by(self, event: WatchEnd) -> dict[str, Any]:
        """Return the result after the trigger has fired."""
        self.progress.heard(event.progress)
        if isinstance(event.error, errors.HumanInputNeeded):
            return self._finish(self.ask(event))
        if event.error:
            raise _seen_by_triggerer(event.error, event)
        if event.too_large:  # a running execution may have a large status as well, so the task may defer again
            again = time.time() + _LARGE_STATUS_INTERVAL
            return self._finish(self.wait(memory=event.memory, deadline=event.deadline, first_poll_at=again))
        # The crew has just reported the execution, so the grace period after a kickoff applies.
        return self._finish(event.result or self._read(event, kicked_off_at=time.time()))

    def ask(self, event: WatchEnd) -> dict[str, Any]:
        """Ask a user under Required Actions to answer the crew, and continue to wait."""
        try:
            self.open_request(self._question(event), [HAS_ANSWERED, STOP_WAITING])
        except Exception as error:  # noqa: BLE001 - the wait goes on without a request
            self.warn(f"No request was created under Required Actions: {error}")
            return self.wait(memory=event.memory, asks=False, deadline=event.deadline)
        return self.wait(memory=event.memory, asked=True, deadline=event.deadline)

    def open_request(self, text: str, options: Sequence[str], **more: Any) -> None:
        """Open a request under Required Actions, which the next deferral answers for."""
        subject = f"The crew waits for human input: {self.ti.task_id}"
        api_server.open_required_action(self.ti, subject, text, options, **more)

    def _question(self, event: WatchEnd) -> str:
        """Log that the crew waits for human input, and return the text of the request, as Markdown."""
        page, seen, chosen = self._page(self.kickoff_id), event.progress or {}, self.kept["chosen"]
        waits = "still waits, or waits again," if chosen else "waits"
        place = (event.memory or {}).get("place", "")
        when = f"{'seen at' if chosen else 'since'} {_time_of_day(seen.get('polled_at'))}"
        answer = f"Answer at {page}." if page else "Answer in the crew's dashboard."
        # An unknown execution may be past the task at which it was last seen.
        at = ", last seen at" if seen.get("state") == "unknown" else " at"
        self.log.info("The crew %s for human input %s%s. %s", waits, when, place and f"{at} {place}", answer)
        text = [
            f"[Answer on the crew's page]({page})" if page else answer,
            f"Execution {self.kickoff_id} {waits} for human input {when}{place and f'{at} {_code(place)}'}.",
            "Only the crew's page shows what the crew asks about, such as a draft.",
            f"**{HAS_ANSWERED}** polls the execution. It sends no answer to the crew.",
            f"**{STOP_WAITING}** fails this task. The execution keeps running and is billed.",
            "This request opens again if the crew still waits or asks again. The task log lists each choice.",
            *chosen,
        ]
        shows_output = may_log_output(self.options.log_output, self.log)
        for task in seen.get("tasks", [])[-1:] if shows_output else ():
            output, name = quoted(task["output"], _LONGEST_DRAFT)[0], _code(task["task_id"])
            text += [
                f"Output of the last finished task at that time: {name}",
                f"```text\n{output}\n```",  # Airflow's page folds a block without a language into one line
            ]
        return "\n\n".join(text)

    def _answered(self, option: str, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after a user has chosen an option under Required Actions."""
        user = (next_kwargs["event"].get("responded_by_user") or {}).get("name", "a user")
        self.log.info("Required Actions: %s chose %r.", user, option)
        chosen = f"{_code(user)} chose {option!r} at {_time_of_day(time.time())}."
        self.kept["chosen"] = [*self.kept["chosen"], chosen][-_MOST_CHOSEN:]
        known: dict[str, Any] = {name: next_kwargs.get(name) for name in ("memory", "deadline")}
        if option == STOP_WAITING:
            with suppress(Exception):  # the connection may be unreadable
                last = self.poller(self.rules(time.time()), WatchState.recalled(known["memory"]))
                self.progress.heard(last.report.as_dict())
            raise errors.WaitStopped(
                f"Execution {self.kickoff_id} waits for human input, but {user} chose {STOP_WAITING!r}.",
                kickoff_id=self.kickoff_id,
            )
        return self._finish(self.answered(option, next_kwargs, known))

    def answered(self, option: str, next_kwargs: Mapping[str, Any], known: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Continue after a user has answered the crew. ``known``: state of the watch, and its deadline."""
        return self.wait(answered_at=time.time(), **known)

    def _poll_after_all(self, next_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once if the trigger failed, or if no triggerer ended the wait in time."""
        why = next_kwargs.get("error", "its event cannot be read")
        if traceback := next_kwargs.get("traceback"):
            self.log.error("The trigger failed:\n%s", "".join(traceback))
        deadline = time.time() + self.options.timeout
        if trigger_timed_out(next_kwargs):
            self.log.warning("No triggerer ended the wait for execution %s in time.", self.kickoff_id)
            deadline = time.time()
        poller = self.poller(self.rules(deadline, exists=True), WatchState(self.started_at))
        if completed := poller.poll().completed:
            return completed.result()
        raise errors.LostContact(
            f"The triggerer no longer polls execution {self.kickoff_id}: {str(why).rstrip('.')}. See the "
            "triggerer's log.",
            kickoff_id=self.kickoff_id,
        )

    def _read(self, event: WatchEnd, **changes: Any) -> dict[str, Any]:
        """Poll for a result that the trigger did not return, despite a short outage or a passed deadline."""
        options = self.options
        deadline = max(event.deadline, time.time() + (options.max_outage or options.timeout))
        rules = self.rules(deadline, exists=True, **changes)
        if event.completed:
            self._note_completion()
            # A completed execution needs no human input, so the outage limit always ends this before the deadline.
            outage = options.max_outage or MAX_OUTAGE
            rules = replace(rules, human_input=False, max_outage=outage, deadline=deadline + outage)
        poller = self.poller(rules)
        if memory := WatchState.recalled(event.memory):
            memory.seen = False  # an unknown execution has the grace period of a new one
            poller.watch.memory = memory
        try:
            while not (step := poller.poll()).completed:
                self.pause(poller, step)
        except errors.ExecutionUnknown as error:
            if error.elsewhere or not event.completed:
                raise
            raise result_out_of_reach(self.kickoff_id, error.lasted) from None
        return step.completed.result()

    def _finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Report a completed execution, and return the result in the form that the task returns."""
        self._note_completion()
        options = self.options
        took, usage = result.get("execution_time"), result.get("usage")
        self._count_end("completed", took, usage)
        self._trace(self.kickoff_id, took, usage)
        self.progress.completed(self.kickoff_id, result, is_returned=options.do_xcom_push)
        where = "in XCom return_value" if options.do_xcom_push else "in the crew's dashboard"
        report(result, self.log, shows_output=may_log_output(options.log_output, self.log), where=where)
        try:
            return value_of(result, self.kickoff_id, options.output_type, self.log)
        except errors.InvalidOutput:
            if options.do_xcom_push:  # it was billed
                self.push_xcom(RESULT, storable(result), what=f"The result of execution {self.kickoff_id}")
            raise

    def _note_completion(self) -> None:
        """Record that the execution has completed, for later errors and for the next attempt."""
        if self.record and not (self.record.last and self.record.last.end == "completed"):
            self.record.update(kickoff_id=self.kickoff_id, end="completed")
        self.phase = "ended"

    # The end.

    def _cancelled_if_wanted(self, error: BaseException) -> BaseException:
        """Cancel the execution if the task ends because of a timeout or because Airflow has ended it."""
        if self.phase != "waiting" or not self.kickoff_id:
            return error
        if isinstance(error, AirflowTaskTimeout):
            event = f"Execution {self.kickoff_id} was still running when execution_timeout passed."
            error = CutShort(event, kickoff_id=self.kickoff_id)
        if not isinstance(error, errors.WaitedTooLong | EndedByAirflow):
            return error
        limit = self.options.execution_timeout
        if type(error) is errors.WaitedTooLong and limit and limit.total_seconds() < self.options.timeout:
            error = CutShort(error.event, kickoff_id=error.kickoff_id)
        if isinstance(error, errors.WaitedTooLong) and not self.cancels_on("timeout"):
            return error
        try:
            hook = copy.copy(self.hook)  # a copy has the token that is valid now
            execution = hook.cancel(self.kickoff_id, self.continued_as)
        except Exception as failure:  # noqa: BLE001 - a secrets backend may raise anything
            return after_cancelling(error, failure)
        if isinstance(execution, Completed):
            self._note_completion()
        return after_cancelling(error, execution)

    def _record_end(self, end: Verdict) -> None:
        """Store the end for the next attempt, push it for the Crew tab, and count it."""
        failure = end.failure
        self._record_state(end)
        if self.kickoff_id:
            usage, took = (getattr(failure, name, None) for name in ("usage", "execution_time"))
            if not isinstance(failure, errors.InvalidOutput):  # counted as completed
                self._count_end(_METRICS.get(type(failure), "broken"), took, usage)
                if failure.cost is errors.Cost.ENDED:
                    self._trace(self.kickoff_id, took, usage, failure)
                for line in in_all({"execution_time": took, "usage": usage}) if usage else ():
                    self.log.info("Crew: %s", line)
        elif not isinstance(failure, UncertainKickoff):
            self.measure("kickoff.not_taken")
        self.progress.ended(self.kickoff_id or failure.kickoff_id, failure, end.as_dict())
        if end.action == "pass on":
            self.log.error("%s", failure)

    def _record_state(self, end: Verdict) -> None:
        """Store how the execution has ended, so that the next attempt decides what the verdict says."""
        if not (self.record and self.kickoff_id):
            return
        match end.failure:
            case errors.ExecutionStopped():
                self.record.update(kickoff_id=self.kickoff_id, end="stopped")
            case errors.ExecutionFailed():
                self.record.update(kickoff_id=self.kickoff_id, end="failed")
            case errors.InvalidOutput() if end.action == "retry":
                self.record.update(kickoff_id=self.kickoff_id, end="failed")
            case errors.ExecutionUnknown(has_completed=True):
                self.record.update(kickoff_id=self.kickoff_id, end="completed", delivered=True)

    def add_asset_extras(self) -> None:
        """Add the execution to the asset events of the task's outlets. A user's extra takes precedence."""
        result = self._value if isinstance(self._value, Mapping) else {}
        extra = {"kickoff_id": self.kickoff_id, **{name: result[name] for name in _EXTRAS if name in result}}
        from airflow.sdk.definitions.asset import Asset, AssetRef

        try:
            for outlet in self.context.get("outlets") or ():
                if isinstance(outlet, (Asset, AssetRef)):
                    event = self.context["outlet_events"][outlet]
                    event.extra = {**extra, **event.extra}
        except Exception as error:  # noqa: BLE001 - the execution is billed already
            self.warn(f"The execution was not added to the asset event extras: {error}")

    # Access to Airflow.

    def warn(self, text: str) -> None:
        """Log a warning."""
        warn(self.log, text)

    def measure(self, metric: str, count: int = 1, *, seconds: float | None = None) -> None:
        """Count a metric, or record a duration. Plain StatsD does not receive the tags."""
        ti, name = self.ti, f"crew.{metric}"
        tags = {"crew_conn_id": self.options.crew_conn_id, "dag_id": ti.dag_id, "task_id": ti.task_id}
        if metric.startswith("resumable_job."):  # a name and a tag of Airflow's ResumableJobMixin
            name, tags = metric, {"operator": type(getattr(ti, "task", None)).__name__}
        try:
            from airflow.providers.common.compat.sdk import Stats

            if seconds is not None:
                Stats.timing(name, timedelta(seconds=seconds), tags=tags)
            else:
                Stats.incr(name, count, tags=tags)
        except Exception as error:  # noqa: BLE001 - metrics are best effort
            self.warn(f"Metrics were not sent, but the task continues: {error}")

    def _count_end(self, end: str, execution_time: float | None, usage: dict[str, Any] | None) -> None:
        """Count the end of the execution and its tokens, record its duration, and push its token usage."""
        self.measure(f"execution.{end}")
        if execution_time is not None:
            self.measure("execution.duration", seconds=execution_time)
        for name in ("prompt", "completion", "total"):
            if isinstance(count := (usage or {}).get(f"{name}_tokens"), int) and count > 0:
                self.measure(f"tokens.{name}", count)
        if usage:
            about = {"kickoff_id": self.kickoff_id, "try_number": self.ti.try_number}
            spent = {**without_reserved_keys(usage), **about}
            self.push_xcom(USAGE, spent, what=f"The token usage of execution {self.kickoff_id}")

    def _trace(self, kickoff_id: str, took: float | None, usage: Any, error: CrewError | None = None) -> None:
        """Record the span of an execution that has ended, once, if Airflow traces its tasks."""
        is_traced_by_sensor = bool(self.record and self.record.last and self.record.last.delivered)
        if kickoff_id == self._traced_id or is_traced_by_sensor or not versions.is_traced():
            return
        try:
            from airflow_provider_crew.tracing import record_execution

            record_execution(self, kickoff_id, took, usage, error)
        except Exception as failure:  # noqa: BLE001 - traces are best effort
            self.warn(f"Execution {kickoff_id} was not traced, but the task continues: {failure}")

    def push_xcom(self, key: str, value: Any, *, what: str) -> None:
        """Push a value to XCom. An error is only logged, because the execution is billed already."""
        try:
            self.ti.xcom_push(key=key, value=value)
        except Exception as error:  # noqa: BLE001
            self.warn(f"{what} was not pushed to XCom: {error}")

    def _push_kickoff_id(self, kickoff_id: str) -> str:
        self.push_xcom(KICKOFF_ID, kickoff_id, what=f"Kickoff ID {kickoff_id}")
        self.push_link(kickoff_id)
        return kickoff_id

    def push_name(self) -> None:
        """Push the name that map_index_template gives to this row of a mapped task, for alerts."""
        if name := getattr(self.ti, "rendered_map_index", None):
            self.push_xcom(ROW, name, what="The name of the row")

    def push_link(self, kickoff_id: str | None = None) -> None:
        """Push the dashboard URL to XCom, unless this process has pushed the same one."""
        url = self._page(kickoff_id)
        if url and url != self._link:
            self._link = url
            self.push_xcom(DASHBOARD_KEY, url, what="The link to the crew's page")

    def _page(self, kickoff_id: str | None = None) -> str | None:
        with suppress(Exception):  # the next use of the connection raises the error
            return self.hook.connection.page_of(kickoff_id)
        return None


def _code(text: str) -> str:
    """Return an external text as Markdown that has no effect."""
    return "`{}`".format(one_line(text, _SHOWN).replace("`", "'"))


def _time_of_day(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds or time.time(), tz=UTC).strftime("%H:%M:%S UTC")


def _seen_by_triggerer(error: CrewError, event: WatchEnd) -> CrewError:
    """Return the error with a hint if the triggerer cannot reach the crew although the worker did."""
    if not isinstance(error, errors.LostContact) or not event.seen or event.has_response:
        return error
    hint = (
        "The triggerer does not find the connection, but the worker does."
        if error.lacks_connection
        else "The triggerer never got a response, but the worker did."
    )
    return error.replace(f"{error.event} {hint}", only_in_triggerer=True)
