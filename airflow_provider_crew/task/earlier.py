"""Execution of an earlier attempt: whether this attempt reattaches to it, starts another, or fails."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.models import Execution, Failed
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.client.wording import execution_failed, unknown_elsewhere
from airflow_provider_crew.exceptions import OtherInputs
from airflow_provider_crew.task.decide import Decision, PolledStatus, decide
from airflow_provider_crew.task.output import Output
from airflow_provider_crew.task.record import KICKOFF_ID, Record, fingerprint, was_rescheduled
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.verdict import Facts

_NO_RESPONSE = "An earlier attempt sent a kickoff and ended before the response, so an execution may have started."


def earlier(record: Record, facts: Facts, output: Output, poll: Callable[[str], Execution]) -> str | None:
    """
    Return the kickoff ID to reattach to. None if this attempt may start an execution.

    Raise an error if it may do neither. The crew is polled if the decision depends on the execution.

    :param facts: Gets the state of the earlier execution, for the verdict on an attempt that sends no kickoff.
    :param poll: Returns the status of an execution.
    """
    task = record.task
    if not (record.is_shared and task.options.durable):
        _reject_extra_attempt(task)
    if record.is_shared and record.may_be_forgotten:
        task.warn(
            "This task may have been cleared without 'Keep task state and resume', which deletes its kickoff "
            "record. If so, an execution of an earlier attempt may still be running, and this attempt may start "
            "another. Both are billed."
        )
    decision = decision_of(record, other_inputs=False)
    other_inputs = decision in {Decision.ASK, Decision.REATTACH} and _has_other_inputs(record)
    status, unreadable = poll_recorded(record, output, poll) if decision is Decision.ASK else (None, None)
    decision = decision_of(record, status, other_inputs=other_inputs)
    if decision is Decision.REATTACH and status == "unknown":
        task.warn(
            f"The crew reports NOT FOUND for execution {record.running} of an earlier attempt, as it does "
            "while it waits for human input. The execution may be running and billed."
        )
    facts.next = record.next
    if unreadable and decision is Decision.FAIL_UNREADABLE:
        raise unreadable
    if decision is not Decision.REATTACH:
        if record.was_cleared:
            record.update()  # a retry may start an execution from here on, as the Crew tab tells
        _start_or_raise(record, decision)
        return None
    if other_inputs:
        task.warn(
            f"Execution {record.last_id} was started with other inputs than the task has now. The task "
            "returns the result of that execution."
        )
    reattach(record)
    return record.last_id


def _has_other_inputs(record: Record) -> bool:
    """Whether the inputs are known to differ from those of the kickoff."""
    if not (record.last and record.last.fingerprint):
        return False
    is_mapped = record.task.ti.map_index >= 0
    now = _fingerprint(record, required=record.is_of_this_attempt or (is_mapped and record.was_cleared))
    return now not in {None, record.last.fingerprint}


def poll_recorded(
    record: Record, output: Output, poll: Callable[[str], Execution]
) -> tuple[PolledStatus, errors.CallError | None]:
    """Poll the execution in the record, and record its end. Return its status, and why that is unreadable."""
    last, kickoff_id = record.last, record.last_id
    address = last.address if last and not last.end else ""  # else, the record decides about an unknown one
    is_cancelled = last is not None and last.cancelled
    status, found = poll_earlier(record.task, poll, kickoff_id, address, is_cancelled=is_cancelled)
    if status == "failed" and decision_of(record, status, other_inputs=False) is Decision.REATTACH:
        return status, None  # the attempt waits for it, and so fails as well
    end = None if status == "running" else status
    if last and end not in {"unknown", "unreadable", last.end}:
        record.update(end=end)
    if isinstance(found, errors.CallError):
        return status, found
    if found:
        failure = execution_failed(found, "")
        output.trace(kickoff_id, failure.execution_time, failure.usage, failure)
    return status, None


def decision_of(record: Record, status: PolledStatus | None = None, *, other_inputs: bool) -> Decision:
    """Return the decision about the execution in the kickoff record."""
    return decide(
        record.last,
        status,
        cleared=record.was_cleared,
        same_attempt=record.is_of_this_attempt,
        durable=record.task.options.durable,
        is_mapped=record.task.ti.map_index >= 0,
        other_inputs=other_inputs,
    )


def poll_earlier(
    task: Task, poll: Callable[[str], Execution], kickoff_id: str, address: str = "", *, is_cancelled: bool = False
) -> tuple[PolledStatus, Failed | errors.CallError | None]:
    """
    Return the status of an execution that an earlier attempt has started, and how it or the poll has failed.

    :param address: Address of the kickoff. Empty if it is not known.
    :param is_cancelled: Whether that attempt has asked the crew to cancel it, so that no person has stopped it.
    """
    try:
        execution = poll(kickoff_id)
    except errors.ExecutionNotFound as error:
        if address and address != error.address:
            raise unknown_elsewhere(kickoff_id, address, error.address) from None
        return "unknown", None
    except errors.CallError as error:
        unreadable = error.replace(f"The status of execution {kickoff_id} is unreadable. {error.event}")
        task.warn(unreadable.event)
        return "unreadable", unreadable
    if isinstance(execution, Failed):
        return "stopped" if execution.was_stopped and not is_cancelled else "failed", execution
    return "completed" if execution.status == "completed" else "running", None


def _start_or_raise(record: Record, decision: Decision) -> None:
    """Log why this attempt may start an execution, or raise why it may not."""
    kickoff_id, task = record.last_id, record.task
    match decision:
        case Decision.KICK_OFF:
            pass
        case Decision.KICK_OFF_BY_CHOICE:
            task.warn(
                f"{_NO_RESPONSE} This attempt may start another, because the task was cleared. Two may be billed."
            )
        case Decision.KICK_OFF_AFTER_END:
            task.log.info(
                "Execution %s of an earlier attempt has ended, so this attempt may start another.", kickoff_id
            )
        case Decision.KICK_OFF_AFRESH:
            task.log.info(
                "durable=False: this attempt may start another execution, although execution %s of an earlier "
                "attempt may be running.",
                kickoff_id,
            )
        case Decision.FAIL_STOPPED:
            event = "The execution of an earlier attempt was stopped by a person, or at that attempt's request."
            raise errors.ExecutionStopped(event, kickoff_id=kickoff_id)
        case Decision.FAIL_OTHER_INPUTS:
            ti = task.ti
            raise OtherInputs(
                "An execution may be running with the inputs of another row or item. It was "
                f"started by task {ti.task_id}, map index {ti.map_index}, of run {ti.run_id} of {ti.dag_id}.",
                kickoff_id=kickoff_id,
            )
        case _:  # no decision other than those above may start an execution
            raise errors.UncertainKickoff(_NO_RESPONSE)


def reattach(record: Record) -> None:
    """Record and log that this attempt reattaches, so that the next one no longer counts as cleared."""
    record.update(max_tries=record.task.ti.max_tries, cancelled=False)
    record.task.log.info("Reattached to execution %s, which an earlier attempt started.", record.last_id)


def _reject_extra_attempt(task: Task) -> None:
    """Reject an extra attempt that Airflow starts by itself, if attempts do not share a kickoff record."""
    ti = task.ti
    # The attempt had pushed a kickoff ID, which Airflow has just deleted.
    if was_rescheduled(ti) and KICKOFF_ID in (ti._ti_context_from_server.xcom_keys_to_clear or ()):  # noqa: SLF001
        raise errors.UncertainKickoff(
            "This attempt has already started an execution. Airflow restarted the attempt because it could "
            "not load the DAG.",
            cost=errors.Cost.RUNNING,
        )
    if ti.try_number > ti.max_tries + 1:
        raise errors.UncertainKickoff(
            "This attempt exceeds the task's retries: Airflow lost the process of the previous attempt, or the "
            "task was cleared while it ran. That attempt may have started an execution."
        )


def _fingerprint(record: Record, *, required: bool) -> str | None:
    """
    Return the fingerprint of this attempt's inputs, or None if it is not known. If it is ``required``, fail then.

    A decorated function is called only if ``required``. Inputs that are not JSON match no earlier kickoff. Neither
    does a row that the function skips, because a skipped task would leave its execution running.
    """
    task = record.task
    state: Any = task.options.kickoff.get("restore_from_state_id")
    if required:
        try:
            return fingerprint(task.inputs, state)
        except (errors.InvalidInputs, AirflowSkipException):
            return ""
        except Exception as error:
            if not record.was_cleared:
                raise
            event = (
                f"The inputs of this task could not be compared with those of the execution: {in_words(error)}."
            )
            raise OtherInputs(event, kickoff_id=record.last_id) from None
    with suppress(Exception):  # only a warning depends on it
        return fingerprint(task.inputs, state) if isinstance(task.options.inputs, Mapping) else None
    return None
