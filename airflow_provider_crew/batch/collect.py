"""Collect the ends of rows, and store their results: they may be gone tomorrow."""

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from airflow_provider_crew import api_server
from airflow_provider_crew.batch.groups import delete_groups
from airflow_provider_crew.batch.reasons import count_reason
from airflow_provider_crew.batch.rows import LONGEST_KEY, Row, Status, failure
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.cancelling import Cancelling
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.models import Completed, Failed
from airflow_provider_crew.client.text import in_words, one_line
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.exceptions import EndedByAirflow
from airflow_provider_crew.task.result import fitted
from airflow_provider_crew.triggers.events import LARGE_STATUS_INTERVAL

_AT_A_TIME = 50
_LONGEST_REASON = 200

# End of a row: the completed execution, None for one that has to be read, or the error that ends it.
RowEnd = Completed | CrewError | None


def collect(batch: BatchRun, ends: Sequence[tuple[Row, RowEnd]], pushed: Callable[[], object]) -> None:
    """
    Read the results of rows that have ended, and store them.

    The crew is asked to cancel each row before it is asked again for any: after SIGTERM, there are only 5 seconds.
    """
    if any(isinstance(end, errors.WaitedTooLong | EndedByAirflow) for _, end in ends):
        batch.renew(0.0)
    asked: dict[str, Cancelling] = {}
    groups = {row.group for row, _ in ends}
    while ends:
        for start in range(0, len(ends), _AT_A_TIME):
            some = ends[start : start + _AT_A_TIME]
            for done in batch.each(partial(_read_end, batch, asked), some):
                for _, outcome in done:
                    outcome.result()
            ended = [row for row, _ in some if row.line]
            store_ends(batch, ended)
            for row in ended:
                del batch.running[row.kickoff_id]
            pushed()
        if ends := [(row, end) for row, end in ends if row.kickoff_id in asked]:
            time.sleep(timing.CANCEL_PAUSE)
    open_groups = {row.group for row in (*batch.rows, *batch.running.values()) if row.sent_at is not None}
    delete_groups(batch, groups - open_groups - {""})


def collect_rest(batch: BatchRun, why: CrewError) -> None:
    """End all running rows, whose executions may keep running. A later attempt watches those again."""
    rows = [row for row in batch.running.values() if row.status == "not_started"]
    collect(batch, [(row, why) for row in rows], lambda: None)


def _read_end(batch: BatchRun, asked: dict[str, Cancelling], item: tuple[Row, RowEnd]) -> None:
    """End a row. It goes on if it has not ended, or if that is unreadable now."""
    row, end = item
    row.line = None
    if end is None:
        end = _result(batch, row)
    elif isinstance(end, CrewError) and not isinstance(end, errors.ExecutionFailed):
        end = _cancelled(batch, row, end, asked)
    match end:
        case None:
            return
        case Completed():
            result = end.result()
            fit(batch, row, result["output"], result["output_json"], {"usage": result["usage"]})
        case errors.ExecutionFailed():
            is_stopped = isinstance(end, errors.ExecutionStopped | errors.ExecutionCancelled)
            end_row(row, "cancelled" if is_stopped else "error", end, "execution", usage=end.usage)
        case _:
            end_row(row, "error", end, "wait")
            batch.carried.outlasting[row.kickoff_id] = row.index
    _measure(batch, row, end)


def _result(batch: BatchRun, row: Row) -> RowEnd:
    """Return the end of a row's execution. None if the row has to be watched again."""
    token = batch.token
    try:
        execution = batch.client.status(row.kickoff_id)
    except errors.ResponseTooLarge as error:
        return error
    except (errors.NotAuthenticated, errors.NotAllowed, errors.Rejected) as error:
        is_renewed = isinstance(error, errors.NotAuthenticated) and batch.has_other_token(token)
        batch.trouble = batch.trouble if is_renewed else error
        return None
    except CrewError:
        return None
    if isinstance(execution, Completed):
        return execution
    if isinstance(execution, Failed):
        return execution_failed(execution, "")
    # A running execution may have a large status as well, which only a worker reads.
    row.first_poll_at = time.time() + LARGE_STATUS_INTERVAL
    return None


def _cancelled(batch: BatchRun, row: Row, why: CrewError, asked: dict[str, Cancelling]) -> RowEnd:
    """Cancel the execution of a row whose wait has ended, if that is wanted. None if it has to be asked again."""
    asking = asked.setdefault(row.kickoff_id, Cancelling(row.kickoff_id))

    def cancel(kickoff_id: str) -> Completed | Failed:
        batch.task.hook.connection.require_address(batch.carried.address)
        return batch.client.cancel(kickoff_id)

    end, execution = batch.stop.cancelled_if_wanted(why, partial(asking.ask, cancel))
    if asking.is_open:
        return None
    del asked[row.kickoff_id]
    if isinstance(execution, Completed):
        return execution
    end = end if isinstance(end, CrewError) else why
    # The line says so, because the crew may end the execution late.
    return errors.NotCancelled(end.event, cost=end.cost) if asking.may_follow and not execution else end


def fit(batch: BatchRun, row: Row, output: str, data: Any, about: dict[str, Any]) -> None:
    """End a row by its output, which matches or not."""
    options, event, found = batch.options, "", data
    try:
        if options.output_type is not None:
            found = fitted(options.output_type, row.kickoff_id, output, data)
        found = output if found is None else found
        if options.check and not options.check(*copy.deepcopy((row.inputs or {}, found))):
            event = "check rejected the output."
    except errors.InvalidOutput as error:
        event = error.event
    except Exception as error:  # noqa: BLE001 - raised by a function of the author
        event = f"check raised {in_words(error)}."
    if event:
        about |= {"output": data, "raw_output": output}  # a later attempt checks both again
        end_row(row, "invalid_output", errors.InvalidOutput(event), "output", **about)
    else:
        row.end("success", output=found, raw_output=output, **about)


def end_row(row: Row, status: Status, error: CrewError, stage: str, **fields: Any) -> None:
    """End a row because of an error."""
    row.end(status, error=failure(error, stage), **fields)


def store_ends(batch: BatchRun, rows: Sequence[Row]) -> None:
    """
    Write the lines of rows that have ended, and log those that failed.

    If the task was cleared meanwhile, the next attempt reports the uncertain ones, before it starts them again.
    """
    is_open = any(row.status == "uncertain" for row in rows)
    if is_open and (batch.stop.is_told() or api_server.is_cleared_meanwhile(batch.task.ti)):
        rows = [row for row in rows if row.status != "uncertain"]
    batch.files.append(row.line for row in rows)
    for row in rows:
        batch.carried.tokens += row.tokens
        batch.carried.metered += bool(row.tokens)
        if row.error:
            message = row.error["message"]
            count_reason(batch.carried.reasons, row.key, row.status, message)
            shown = one_line(row.key, LONGEST_KEY), row.status, one_line(message, _LONGEST_REASON)
            batch.task.log.warning("Row %s, %s: %s", *shown)
        row.remember(*row.as_memory())
        row.sent_at = None


def _measure(batch: BatchRun, row: Row, end: Completed | CrewError) -> None:
    """Count the end of a row as that of a run, and record its span if its execution has ended."""
    error = end if isinstance(end, CrewError) else None
    took, usage = getattr(end, "execution_time", None), getattr(end, "usage", None)
    batch.output.count_end(error, took, usage)
    if error is None or isinstance(error, errors.ExecutionFailed):
        batch.output.trace(row.kickoff_id, took, usage, error, row=row.index, sent_at=row.sent_at or time.time())
