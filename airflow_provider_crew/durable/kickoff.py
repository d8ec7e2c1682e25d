"""Kickoff of a task, sent once no matter how the task is interrupted. No other module sends kickoffs for tasks."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import tenacity
from airflow.providers.common.compat.sdk import AirflowSkipException, AirflowTaskTimeout, TaskDeferred
from jinja2 import TemplateError, TemplateNotFound

from airflow_provider_crew import versions
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import KickoffRequest, retry_policy
from airflow_provider_crew.client.errors import Cost, CrewError, UncertainKickoff
from airflow_provider_crew.client.options import KickoffOptions
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.client.watch import unknown_elsewhere
from airflow_provider_crew.durable.checks import check_inputs, count_kickoff
from airflow_provider_crew.durable.decide import Decision, End, PolledStatus, decide
from airflow_provider_crew.durable.outcome import (
    HOW_TO_GIVE_UP,
    RETRY_REATTACHES,
    end_before_kickoff,
    end_kickoff_that_took_too_long,
    end_to_retry,
    end_uncertain,
    ended_from_outside,
    give_up,
)
from airflow_provider_crew.durable.record import (
    KICKOFF_ID,
    RETURN_VALUE,
    SharedRecord,
    fingerprint,
    kickoff_id_left_by,
)
from airflow_provider_crew.durable.result import check_type
from airflow_provider_crew.durable.signals import DeferSignals
from airflow_provider_crew.durable.task import RunningTask
from airflow_provider_crew.durable.wait import Wait
from airflow_provider_crew.exceptions import CrewTaskError, CrewTaskFailed, CrewTaskTimeout, EndedTask, OtherInputs
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.triggers.events import WatchEnd, chosen_option, read_event

if TYPE_CHECKING:
    from airflow_provider_crew.operators.crew import KickoffTask

_NO_ANSWER = "An earlier attempt sent a kickoff and ended before its answer, so an execution may have started."
_ONE_ATTEMPT_TOO_MANY = (
    "Airflow runs this task once more than its retries allow: it lost the process of the previous attempt, "
    "or the task was cleared while it ran. That attempt may have started an execution."
)
_ENDS: dict[str, End] = {"completed": "completed", "error": "failed"}

T = TypeVar("T")

# Exceptions that are not logged again, because they state their own cost or are expected.
_SELF_EXPLANATORY = (CrewError, EndedTask, AirflowSkipException, KeyboardInterrupt, SystemExit)
_SENDING = (
    "Sending the kickoff. If this is the last line of the log, an execution may have started: find it in the "
    "crew's dashboard %s."
)


class DurableRun:
    """
    Execution of one task, shared by all of its attempts if Airflow can store a kickoff record.

    On Airflow 3.3 and later, a retry reattaches to the execution of the previous attempt.

    :param task: Process of the task.
    :param resumed: Whether this process resumes after a deferral, so the execution was started before it.
    """

    def __init__(self, task: RunningTask, *, resumed: bool) -> None:
        self.task = task
        self._given: KickoffTask = task.operator
        self._resumed = resumed
        self._on_its_way = False
        self._has_other_inputs = False
        self.has_abandoned = False
        """Whether this attempt has given up the execution of an earlier one, and will start another."""
        self.record = task.record = self._recalled()
        if resumed:
            self._recall_name()
        if self.record.is_shared:
            task.waits_again = RETRY_REATTACHES

    @cached_property
    def _inputs(self) -> Any:
        """Inputs of a kickoff. An attempt that reattaches needs them only to compare rows of a mapped task."""
        if self._given.not_rendered:  # never send templates
            raise self._given.not_rendered
        return self._given.kickoff_inputs(self.task.context)

    def existing_execution(self) -> str | None:
        """Return the kickoff ID of the execution to reattach to. None if this attempt has to start one."""
        with self._before_execution():
            self.task.push_link()
            kickoff_id = self._carry_out(self._decide())
            if kickoff_id:
                self._recall_name()
                self.task.kickoff_id = kickoff_id
                self._push_kickoff_id(kickoff_id)
        return kickoff_id

    def start(self) -> str:
        """
        Send the kickoff once and return the kickoff ID.

        The intent is recorded before the request, so a crash in between leaves a trace: the next attempt reports
        an uncertain kickoff instead of starting a second execution.
        """
        with self._before_execution():
            self._check_options()
            check_type(self._given)
            request = self._request(self._inputs)
            self.task.render_name()  # the function may have set variables in its context
            check_inputs(self.task, request)
            count_kickoff(self.task, self._origin())
            self._warn_of_retries()
            kickoff_id = self._send_once(request)
            self._push_kickoff_id(kickoff_id)
        return kickoff_id

    def wait(self, kickoff_id: str) -> dict[str, Any]:
        """Return the result of the execution, or defer until there is one."""
        return Wait(self.task).result(kickoff_id)

    def resume(self, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the result after a deferral. The trigger's event takes precedence over the kickoff record."""
        if not self._resumed:  # Airflow has resumed a retry with the error of an earlier attempt
            return self._start_over()
        is_old = versions.resumed_with_old_event(next_kwargs, self.task.ti)
        end, last = read_event(next_kwargs.get("event")), self.record.last
        if is_old and end and last and last.kickoff_id != end.kickoff_id:
            return self._start_over()  # a later attempt has sent another kickoff
        try:
            return self._resume(end, next_kwargs)
        except errors.InvalidOutput:
            if not is_old:
                raise
            return self._start_over()  # the execution of the earlier attempt has ended

    def _start_over(self) -> dict[str, Any]:
        """
        Run like an attempt that was not resumed, because the event belongs to an earlier attempt.

        The record is read again: a resumed process tolerates an unreadable one, and a kickoff must not.
        """
        task = self.task
        task.kickoff_id, task.has_ended, self._resumed = None, False, False
        self.record = task.record = self._recalled()
        task.waits_again = RETRY_REATTACHES if self.record.is_shared else ""
        return self.wait(self.existing_execution() or self.start())

    def deliver(self, value: T) -> T:
        """
        Return the task's return value.

        If attempts share no kickoff record, push the value to XCom first, while no error may be retried. A later
        failure to push would be retried, and start a second execution.
        """
        ti = self.task.ti
        if not self.record.is_shared and ti.max_tries and self._given.do_xcom_push:
            ti.xcom_push(key=RETURN_VALUE, value=value)
        return value

    @contextmanager
    def no_second_kickoff(self) -> Iterator[None]:
        """Prevent retries that would start another execution, however the task ends after its kickoff."""
        task = self.task
        try:
            yield
        except (TaskDeferred, CrewTaskFailed, errors.ExecutionFailed, errors.InvalidOutput, UncertainKickoff):
            raise
        except BaseException as error:
            if self._on_its_way and task.kickoff_id is None:
                end_uncertain(
                    self,
                    UncertainKickoff(
                        f"Task was ended while its kickoff was being sent, so an execution may have started: "
                        f"{in_words(error)}."
                    ),
                )
            kicked_off = self._resumed or task.kickoff_id is not None
            if isinstance(error, AirflowTaskTimeout) and not kicked_off:
                end_to_retry(self, "execution_timeout passed before the kickoff.", CrewTaskTimeout)
            is_cut_short = type(error) is AirflowTaskTimeout and task.kickoff_id and not task.has_ended
            if is_cut_short and task.cancels_on("timeout"):
                end_kickoff_that_took_too_long(task)
            ended = ended_from_outside(self, error, kicked_off=kicked_off)
            if kicked_off and not self.record.is_shared:
                raise CrewTaskFailed(ended) from error
            if not isinstance(error, _SELF_EXPLANATORY):
                task.log.error("%s", ended)  # noqa: TRY400 - Airflow logs the traceback
            raise

    def _decide(self) -> Decision:
        """Return the decision about the execution of an earlier attempt. Poll it if the decision depends on it."""
        task, record = self.task, self.record
        if not record.is_shared:
            self._reject_extra_attempt()
        if record.may_be_deleted:
            task.warn(
                "This task may have been cleared without 'Keep task state', which deletes its kickoff record. It "
                "starts an execution. One of an earlier attempt may still be running, and billed."
            )
        last = record.last
        if last and last.fingerprint:
            now = self._fingerprint(required=task.ti.map_index >= 0 and record.was_cleared)
            self._has_other_inputs = now is not None and now != last.fingerprint
        decision = self.decision()
        if decision is not Decision.ASK or not record.running:
            return decision
        status = self._poll(record.running)
        decision = self.decision(status)
        if decision is Decision.REATTACH and status == "unknown":
            task.warn(
                f"Execution {record.running} of an earlier attempt is unknown to the crew, as it is while a crew "
                f"waits for human input. It may be running, and billed. {HOW_TO_GIVE_UP}"
            )
        return decision

    def decision(self, status: PolledStatus | None = None) -> Decision:
        """Return the decision about the execution of an earlier attempt, with its status if it was polled."""
        record, last, limit = self.record, self.record.last, self._given.abandon_unknown_after
        return decide(
            last,
            status,
            cleared=record.was_cleared,
            chooses_twice=self.chooses_twice,
            is_old=last is not None and limit is not None and time.time() - last.kicked_off_at > limit,
            is_mapped=self.task.ti.map_index >= 0,
            other_inputs=self._has_other_inputs,
        )

    @property
    def chooses_twice(self) -> bool:
        """Whether the DAG author prefers a second execution to a failure."""
        return self._given.on_uncertain_kickoff == "retry"

    def _carry_out(self, decision: Decision) -> str | None:
        """Return the kickoff ID to reattach to. None if this attempt may start an execution."""
        task, record, last = self.task, self.record, self.record.last
        kickoff_id = last.kickoff_id if last else None
        match decision:
            case Decision.REATTACH:
                if self._has_other_inputs:
                    task.warn(
                        f"Execution {kickoff_id} has other inputs than the task has now. The task returns its "
                        "result."
                    )
                self._reattach(kickoff_id)
                return kickoff_id
            case Decision.KICK_OFF_BY_CHOICE:
                is_cleared = record.was_cleared and last and last.reported
                why = "the task was cleared" if is_cleared else "on_uncertain_kickoff='retry'"
                task.warn(f"{_NO_ANSWER} This attempt starts another, because {why}. Two may be billed.")
            case Decision.KICK_OFF_AFTER_EXPIRY:
                self.has_abandoned = True
                task.warn(
                    f"Execution {kickoff_id} of an earlier attempt is unknown to the crew, and older than "
                    "abandon_unknown_after. The task was cleared, so it starts another. If the earlier one still "
                    "waits for human input, two are billed."
                )
            case Decision.KICK_OFF_AFTER_END:
                task.log.info("Execution %s of an earlier attempt has ended. Starting another.", kickoff_id)
            case Decision.KICK_OFF:
                pass
            case Decision.FAIL_OTHER_INPUTS:
                raise self._other_inputs(kickoff_id or "")
            case _:  # no decision other than those above may start an execution
                raise UncertainKickoff(_NO_ANSWER)
        return None

    def _other_inputs(self, kickoff_id: str) -> OtherInputs:
        """
        Return the error for an execution that may be running with the inputs of another row.

        Reattaching would return the result of the other row. Starting another execution could bill two at once.
        """
        ti = self.task.ti
        return OtherInputs(
            f"Execution {kickoff_id} may be running with the inputs of another row: task {ti.task_id}, map index "
            f"{ti.map_index}, of run {ti.run_id} of {ti.dag_id} started it before the list of inputs changed.",
            next_step=f'Read its result with CrewExecutionSensor(kickoff_id="{kickoff_id}"), or clear the task '
            "when it has ended.",
            kickoff_id=kickoff_id,
        )

    def _reattach(self, kickoff_id: str | None) -> None:
        """Continue with the execution of an earlier attempt."""
        self.record.save_reattached()
        self.task.log.info(
            "Reattached to execution %s, which an earlier attempt started with its inputs. To start another: "
            "clear the task when it has ended, or set durable=False.",
            kickoff_id,
        )

    def _poll(self, kickoff_id: str) -> PolledStatus:
        """
        Return the status of the execution at the service, and record its end.

        Raises ExecutionUnknown if the connection now points to another address than that of the kickoff.
        """
        record = self.record
        try:
            execution = self.task.hook.status(kickoff_id)
        except errors.ExecutionNotFound as error:
            kicked_off_at = record.last.address if record.last else ""
            if kicked_off_at and kicked_off_at != error.address:
                raise unknown_elsewhere(kickoff_id, kicked_off_at, error.address) from None
            return "unknown"
        except errors.CallError as error:
            self.task.warn(f"Status of execution {kickoff_id} is unreadable. {error.event}")
            return "unreadable"
        end = _ENDS.get(execution.status)
        if end:
            record.update(end=end)
        return end or "running"

    def _reject_extra_attempt(self) -> None:
        """Reject an extra attempt that Airflow starts by itself, if attempts do not share a kickoff record."""
        ti = self.task.ti
        # The attempt had pushed a kickoff ID, which Airflow has just deleted.
        if versions.was_rescheduled(ti) and KICKOFF_ID in versions.xcom_keys_left_behind(ti):
            raise UncertainKickoff(
                "This attempt has already started an execution. Airflow restarted the attempt because it could "
                "not load the DAG.",
                cost=Cost.RUNNING,
            )
        if ti.try_number <= ti.max_tries + 1:
            return
        if not self.chooses_twice:
            raise UncertainKickoff(_ONE_ATTEMPT_TOO_MANY)
        self.task.warn(
            f"{_ONE_ATTEMPT_TOO_MANY} This attempt starts another, because on_uncertain_kickoff='retry'. Two may "
            "be billed."
        )

    def cannot_render(self, error: Exception) -> NoReturn:
        """
        Fail without a retry if only a change to the template can fix the error.

        Other errors are retried, as is a missing template file. If an earlier attempt may have started an
        execution, every error is retried, because a retry that renders its templates can reattach.
        """
        passes = not isinstance(error, TemplateError) or isinstance(error, TemplateNotFound)
        with self.no_second_kickoff():
            if not passes and self._is_the_first_kickoff():
                end_before_kickoff(
                    self,
                    CrewError(
                        f"A template of this task cannot be rendered: {in_words(error)}.",
                        cost=Cost.NONE,
                        next_step="Fix the template or the params. If it names the result of another task, clear "
                        "that task.",
                    ),
                )
            raise error

    def _is_the_first_kickoff(self) -> bool:
        """Whether this attempt would start an execution, and no earlier one has left any to reattach to."""
        record, ti = self.record, self.task.ti
        if not record.is_shared:
            return bool(ti.try_number <= 1 and not versions.was_rescheduled(ti))
        return self.decision() in {Decision.KICK_OFF, Decision.KICK_OFF_AFTER_END}

    @contextmanager
    def _before_execution(self) -> Iterator[None]:
        """End the task with the right exception if the block ends without an execution."""
        try:
            yield
        except KeyboardInterrupt:
            self.task.end()
            raise
        except CrewError as error:
            end_before_kickoff(self, error)

    def _push_kickoff_id(self, kickoff_id: str) -> None:
        self.task.push_xcom(KICKOFF_ID, kickoff_id, what=f"Kickoff ID {kickoff_id}")
        self.task.push_link(kickoff_id)

    def _resume(self, end: WatchEnd | None, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        kickoff_id = end.kickoff_id if end else self._deferred_execution()
        self.record.save_kickoff_id(kickoff_id)
        if end:
            return Wait(self.task).resume(end)
        if option := chosen_option(next_kwargs.get("event")):
            return Wait(self.task).answered(kickoff_id, option, next_kwargs)
        if versions.lacks_event(next_kwargs):
            self._reattach(kickoff_id)
            return self.wait(kickoff_id)
        return Wait(self.task).poll_after_all(kickoff_id, next_kwargs)

    def _deferred_execution(self) -> str:
        """Return the kickoff ID that this attempt pushed to XCom, or else that of the kickoff record."""
        last = self.record.last
        found = kickoff_id_left_by(self.task.ti) or (last and last.kickoff_id)
        if not found:
            failure = errors.InvalidKickoffId(
                "Kickoff ID of this task is lost.",
                cost=Cost.RUNNING,
                next_step="Find the execution in the crew's dashboard, and wait for it with CrewExecutionSensor.",
            )
            give_up(self.task, CrewTaskFailed(failure))
        return found

    def _fingerprint(self, *, required: bool) -> str | None:
        """
        Return the fingerprint of this attempt's inputs, or None if it is not known.

        A decorated function is called only if ``required``. Inputs that are not JSON match no earlier kickoff.
        """
        state = self._given.restore_from_state_id
        if required:
            try:
                return fingerprint(self._inputs, state)
            except errors.InvalidInputs:
                return ""
        try:
            return fingerprint(self._inputs, state) if isinstance(self._given.inputs, Mapping) else None
        except Exception:  # noqa: BLE001 - only a warning depends on it
            return None

    def _send_once(self, request: KickoffRequest) -> str:
        """Send the kickoff while signals are deferred, so its ID is recorded before one can end the task."""
        with DeferSignals(self.record.save_again) as held:
            policy = tenacity.Retrying(**retry_policy(only_if_not_started=True), sleep=held.sleep)
            kickoff_id: str = policy(
                self._send, request, fingerprint(request.inputs, self._given.restore_from_state_id)
            )
            # Set before a deferred signal can interrupt the task.
            self.task.kickoff_id = kickoff_id
            self.record.save_kickoff_id(kickoff_id)
        self.task.measure("kickoff.started")
        return kickoff_id

    def _check_options(self) -> None:
        """Reject options that render to nothing, before the inputs are computed and anything is sent."""
        self.task.check_connection()
        for name in KickoffOptions.__annotations__:
            self.task.check_option(name, errors.InvalidInputs)
        self.task.check_option("webhook_conn_id", errors.InvalidSettings)

    def _recall_name(self) -> None:
        if self.record.last:
            self.task.render_name(self.record.last.name)

    def _request(self, inputs: Any) -> KickoffRequest:
        given = self._given
        options = {name: getattr(given, name) for name in KickoffOptions.__annotations__}
        options["meta"] = {"airflow": self._origin()} if given.meta is None else given.meta
        secret = load_secret(given.webhook_conn_id) if given.webhook_conn_id else None
        return KickoffRequest.of(inputs, webhook_secret=secret, **options)

    def _send(self, request: KickoffRequest, digest: str) -> str:
        """Send the kickoff once. Record it first, and remove the record if it certainly started nothing."""
        task, record = self.task, self.record
        if task.operator.is_told_to_end:
            end_to_retry(self, "Task was ended before the kickoff.")
        try:
            record.save_intent(task.hook.connection.settings.address, task.name, digest)
        except Exception as error:  # noqa: BLE001 - no error may send an unrecorded kickoff
            event = f"Airflow did not store the kickoff record, so nothing was sent: {in_words(error)}."
            end_to_retry(self, event)
        self._on_its_way = True
        # If the process is killed from here on, this line is the last in the log.
        task.log.info(_SENDING, self.mark())
        try:
            return task.hook.get_conn().kickoff(request)
        except CrewError as error:
            if not isinstance(error, UncertainKickoff):
                self._on_its_way = False
                record.delete_intent()
            raise

    def _origin(self) -> dict[str, Any]:
        """Return the meta of the kickoff. It identifies a lost execution, since the service lists none."""
        names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
        return {name: getattr(self.task.ti, name) for name in names}

    def mark(self) -> str:
        """Return a hint for finding this task's execution in the crew's dashboard."""
        if self._given.meta is not None:
            return "by the meta of this task"
        names = {name: value for name, value in self._origin().items() if name != "try_number"}
        return f"by its meta, which contains {json.dumps(names)[1:-1]}"

    def _warn_of_retries(self) -> None:
        if self.record.is_shared or not self.task.ti.max_tries:
            return
        why = "Airflow keeps a kickoff record from 3.3 on" if self._given.durable else "durable=False"
        self.task.warn(
            f"This task has retries, and its attempts do not know of each other ({why}). If it is killed after "
            "the kickoff, a retry starts another execution, which is billed. CrewKickoffOperator with retries=0, "
            "followed by CrewExecutionSensor with retries, prevents that."
        )

    def _recalled(self) -> SharedRecord:
        """Read the kickoff record of earlier attempts. If it is unreadable, no kickoff may be sent."""
        task = self.task
        try:
            return SharedRecord(task.context, wanted=self._given.durable)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            if not self._resumed:
                failure = CrewError(
                    f"Airflow did not return the kickoff record, so nothing was sent: {in_words(error)}.",
                    next_step="A retry, or clearing the task, reads it again.",
                )
                give_up(task, CrewTaskError(failure))
            task.warn(f"Kickoff record is unreadable: {error}")
            return SharedRecord(task.context, wanted=False)
