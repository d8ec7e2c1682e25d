"""Collect the ends of rows, and store their results: they may be gone tomorrow."""

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from airflow_provider_crew.batch.facts import Fact, end
from airflow_provider_crew.batch.fold import Row
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.client import Cancelling
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.models import Completed, Failed
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.client.wording import duration, execution_failed, unknown_elsewhere
from airflow_provider_crew.exceptions import EndedByAirflow
from airflow_provider_crew.task.result import fitted
from airflow_provider_crew.triggers.events import LARGE_STATUS_INTERVAL

_AT_A_TIME = 50

# End of a row: the completed execution, None for one that has to be read, or the error that ends it.
RowEnd = Completed | CrewError | None


def collect(batch: BatchRun, ends: Sequence[tuple[Row, RowEnd]], pushed: Callable[[], object]) -> None:
    """
    Read the results of rows that have ended, and store them.

    The crew is asked to cancel each row before it is asked again for any: after SIGTERM, there are only 5 seconds.
    Ends that others may share, such as lost contact, come last, because the attempt may have to end instead.
    """
    if any(isinstance(why, errors.WaitedTooLong | EndedByAirflow) for _, why in ends):
        batch.renew(0.0)
    doubtful = [(row, why) for row, why in ends if isinstance(why, CrewError) and _is_doubtful(why)]
    ends = [end for end in ends if end not in doubtful]
    asked: dict[str, Cancelling] = {}
    while ends or doubtful:
        if not ends:
            _reject_doubt(batch, [why for _, why in doubtful])
            ends, doubtful = [*doubtful], []
        for start in range(0, len(ends), _AT_A_TIME):
            done = batch.each(partial(_end_of, batch, asked), ends[start : start + _AT_A_TIME])
            known = [(row, outcome.result()) for some in done for (row, _), outcome in some]
            doubtful += [(row, each) for row, each in known if isinstance(each, CrewError)]
            batch.record(each for _, each in known if each and not isinstance(each, CrewError))
            pushed()
        if ends := [(row, why) for row, why in ends if row.name in asked]:
            time.sleep(timing.CANCEL_PAUSE)


def collect_rest(batch: BatchRun, why: CrewError) -> None:
    """End the wait for all running rows, whose executions may go on. A later attempt waits for those again."""
    collect(batch, [(row, why) for row in batch.running.values()], lambda: None)


def _is_doubtful(why: CrewError) -> bool:
    is_moved = isinstance(why, errors.ExecutionUnknown) and bool(why.elsewhere)
    return is_moved or isinstance(why, errors.LostContact | errors.WatchBroken)


def _reject_doubt(batch: BatchRun, why: Sequence[CrewError]) -> None:
    """
    Raise the error of a row if others have it as well. All rows keep running for the next attempt.

    That is so if the connection has changed or is unreadable, or if the crew does not respond about an execution
    that it does not know.
    """
    lost = why[0]
    for error in why:
        cause = getattr(error, "cause", None)
        if isinstance(error, errors.ExecutionUnknown) or getattr(cause, "lacks_connection", False):
            raise error
    try:
        batch.client.status(str(uuid4()))
    except errors.ExecutionNotFound:
        return
    except CrewError:
        raise lost from None


def _end_of(batch: BatchRun, asked: dict[str, Cancelling], item: tuple[Row, RowEnd]) -> Fact | CrewError | None:
    """Return the end of a row, or why that is doubtful. None if it has not ended, or if that is unreadable now."""
    row, why = item
    if why is None:
        why = _result(batch, row)
        if isinstance(why, CrewError) and _is_doubtful(why):
            return why
    elif isinstance(why, CrewError) and not isinstance(why, errors.ExecutionFailed):
        why = _cancelled(batch, row, why, asked)
    if why is None:
        return None
    _measure(batch, row, why)
    if isinstance(why, Completed):
        result = why.result()
        return fit(batch, row, result["output"], result["output_json"], usage=result["usage"])
    return failed(row, why)


def failed(row: Row, error: CrewError) -> Fact:
    """Return the end of a row without a result."""
    if not isinstance(error, errors.ExecutionFailed):
        return end(row, "error", error, "wait")
    is_stopped = isinstance(error, errors.ExecutionStopped | errors.ExecutionCancelled)
    return end(row, "cancelled" if is_stopped else "error", error, "execution", usage=error.usage)


def _result(batch: BatchRun, row: Row) -> RowEnd:
    """
    Return the end of a row's execution. None if the row has to be watched again.

    If only the worker cannot read it, each watch ends at once, so the row is lost after ``max_outage``.
    """
    token = batch.token
    try:
        execution = batch.client.status(row.kickoff.kickoff_id)
    except errors.ResponseTooLarge as error:
        return error
    except CrewError as error:
        if isinstance(error, errors.NotAuthenticated) and not batch.has_other_token(token):
            batch.trouble = error
        return _unread(batch, row, error)
    batch.carried.unread.pop(row.name, None)
    if isinstance(execution, Completed):
        return execution
    if isinstance(execution, Failed):
        return execution_failed(execution, "")
    # A running execution may have a large status as well, which only a worker reads.
    row.first_poll_at = time.time() + LARGE_STATUS_INTERVAL
    return None


def _unread(batch: BatchRun, row: Row, error: CrewError) -> CrewError | None:
    """Return the error of a row whose result could not be read, or None if it is watched again."""
    there, longest = row.kickoff.address, batch.options.max_outage
    if isinstance(error, errors.ExecutionNotFound) and there not in {"", error.address}:
        return unknown_elsewhere(row.kickoff.kickoff_id, there, error.address)
    lasted = time.time() - batch.carried.unread.setdefault(row.name, time.time())
    if longest is not None and lasted > longest:
        event = f"The worker could not read a result for over {duration(longest)}. {error.event}"
        return errors.LostContact(event, cause=error)
    row.first_poll_at = time.time() + timing.UNKNOWN_POLL
    return None


def _cancelled(batch: BatchRun, row: Row, why: CrewError, asked: dict[str, Cancelling]) -> RowEnd:
    """Cancel the execution of a row whose wait has ended, if that is wanted. None if it has to be asked again."""
    asking = asked.setdefault(row.name, Cancelling(row.kickoff.kickoff_id))

    def cancel(kickoff_id: str) -> Completed | Failed:
        batch.task.hook.connection.require_address(row.kickoff.address)
        return batch.client.cancel(kickoff_id)

    error, execution = batch.stop.cancelled_if_wanted(why, partial(asking.ask, cancel))
    if asking.is_open:
        return None
    del asked[row.name]
    if isinstance(execution, Completed):
        return execution
    found = error if isinstance(error, CrewError) else why
    # The fact says so, because the crew may end the execution late.
    return errors.NotCancelled(found.event, cost=found.cost) if asking.may_follow and not execution else found


def fit(batch: BatchRun, row: Row, output: str, data: Any, **about: Any) -> Fact:
    """Return the end of a row by its output, which matches or not."""
    options, event, found = batch.options, "", data
    try:
        if options.output_type is not None:
            found = fitted(options.output_type, row.kickoff.kickoff_id, output, data)
        found = output if found is None else found
        if options.check and not options.check(*copy.deepcopy((row.inputs or {}, found))):
            event = "check rejected the output."
    except errors.InvalidOutput as error:
        event = error.event
    except Exception as error:  # noqa: BLE001 - raised by a function of the author
        event = f"check raised {in_words(error)}."
    if event:  # a later attempt checks both again
        invalid = errors.InvalidOutput(event)
        return end(row, "invalid_output", invalid, "output", output=data, raw_output=output, **about)
    return end(row, "success", output=found, raw_output=output, **about)


def _measure(batch: BatchRun, row: Row, why: Completed | CrewError) -> None:
    """Count the end of a row as that of a run, and record its span if its execution has ended."""
    error = why if isinstance(why, CrewError) else None
    took, usage = getattr(why, "execution_time", None), getattr(why, "usage", None)
    batch.output.count_end(error, took, usage)
    if error is None or isinstance(error, errors.ExecutionFailed):
        sent_at = row.kickoff.sent_at or time.time()
        batch.output.trace(row.kickoff.kickoff_id, took, usage, error, row=row.index, sent_at=sent_at)
