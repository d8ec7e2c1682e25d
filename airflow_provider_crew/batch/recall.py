"""Rows that earlier processes of a batch have started, and what this attempt does with each."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from airflow_provider_crew.batch.collect import end_row, fit, store_ends
from airflow_provider_crew.batch.groups import kickoffs_of_rows, save_groups, sent_in_groups
from airflow_provider_crew.batch.reasons import count_reason
from airflow_provider_crew.batch.rows import Row, decision_of, merged
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import CallError
from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.task.decide import Decision, PolledStatus
from airflow_provider_crew.task.earlier import poll_earlier


def recall(batch: BatchRun, stored: Any, *, is_resumed: bool) -> None:
    """
    Read the result files and the task state store, and decide about each row.

    :param stored: Entry of the batch in the store.
    :param is_resumed: Whether this attempt has run before, so that it starts no row again.
    """
    task, state, options, files = batch.task, batch.carried, batch.options, batch.files
    files.number_on()
    sent = sent_in_groups(batch, stored)
    removed = merged(batch.rows, files.lines(), sent)
    _note_lost_lines(batch, stored)
    every = (*batch.rows, *removed)
    state.tokens = sum(row.tokens for row in every)
    state.metered = sum(row.usage.get("executions", 0) for row in every)
    state.removed_attempts = sum(row.attempts for row in removed)
    state.has_result = any((row.line or {}).get("raw_output") is not None for row in every)
    state.is_billed |= bool(stored and stored["is_billed"])
    state.is_billed |= any(row.attempts for row in every)
    keys = {row.key for row in batch.rows}
    state.changed = sum(row.key in keys for row in removed)
    state.removed = len(removed) - state.changed
    # Airflow 3.4 deletes the state of a task that is cleared. A batch without state is new, or was cleared.
    cleared = not stored or stored["max_tries"] != task.ti.max_tries
    decide_on = partial(decision_of, cleared=cleared, rerun=options.rerun)
    decisions = _decisions(batch, every, decide_on, is_resumed=is_resumed)
    if batch.running and stored:
        state.address = state.address or stored["address"]
    news = [row for row in every if _apply(batch, row, *decisions[id(row)])]
    store_ends(batch, [row for row in news if row.is_to_be_started])
    # Only now: rows that start again are in the files.
    save_groups(batch, *{group for *_, group in sent}.union(stored["groups"] if stored else ()))
    # Only now: a later attempt must not take these reports for older than the clear.
    store_ends(batch, [row for row in news if not row.is_to_be_started])
    state.gone = sum(row.index < 0 and row.status == "uncertain" for row in news)
    for row in batch.rows:
        if row.has_ended and row.outlasts:
            state.outlasting[row.kickoff_id] = row.index
        if message := row.error.get("message"):  # not one of those that were stored just now
            count_reason(state.reasons, row.key, row.status, message)
        row.remember(*row.as_memory())
    state.earlier = sum(not (row.is_to_be_started or row.sent_at) for row in batch.rows)
    if state.earlier:
        task.log.info("Rows that have ended in earlier attempts: %d.", state.earlier)
    if batch.running:
        task.log.info("Reattached to executions of earlier attempts: %d.", len(batch.running))


def _decisions(
    batch: BatchRun, rows: Sequence[Row], decide_on: Callable[..., Decision], *, is_resumed: bool
) -> dict[int, tuple[Decision, Any]]:
    """
    Return the decision about each row by its ``id()``, with the usage of an execution that has failed since.

    The crew is polled if a decision depends on the execution, which is running if the decision is still to ask.
    """
    found = {id(row): Decision.REATTACH if is_resumed and row.has_ended else decide_on(row) for row in rows}
    decisions = {name: (decision, None) for name, decision in found.items()}
    for done in batch.each(partial(_poll, batch), [row for row in rows if found[id(row)] is Decision.ASK]):
        for row, outcome in done:
            status, end = outcome.result()
            decision = Decision.ASK if is_resumed else decide_on(row, status)
            if decision in {Decision.KICK_OFF_AFTER_END, Decision.FAIL_UNREADABLE}:
                decisions[id(row)] = decision, getattr(end, "usage", None) if row.outlasts or row.sent_at else None
            else:
                batch.running[row.kickoff_id] = row
    return decisions


def _note_lost_lines(batch: BatchRun, stored: Any) -> None:
    """Treat a row as sent if the store has more kickoffs of it than the files and groups."""
    known = zip(batch.rows, kickoffs_of_rows(stored, batch.carried.plan[0]), strict=False)
    lost = [(row, number) for row, number in known if number > row.attempts]
    for row, number in lost:
        row.attempts, row.sent_at, row.line = number, batch.carried.started_at, None
        row.kickoff_id = ""  # a line may have that of an earlier kickoff
    if lost:
        batch.task.warn(f"Rows that earlier attempts have started, and that the result files lack: {len(lost):,}.")


def _apply(batch: BatchRun, row: Row, decision: Decision, usage: Any) -> bool:
    """
    Apply the decision about a row. Return whether that is news for the result files.

    :param usage: Usage of an execution that has failed since.
    """
    line = row.line or {}
    match decision:
        case Decision.ASK:  # it is running
            row.sent_at, row.line = row.sent_at or line["started_at"], None
        case Decision.FAIL_UNCERTAIN if row.sent_at is not None:
            event = "An earlier attempt ended before the kickoff's response, or the row's result file is lost."
            end_row(row, "uncertain", errors.UncertainKickoff(event), "kickoff")
            batch.output.measure("kickoff.uncertain")
            return True
        case Decision.REATTACH if row.status == "invalid_output" and row.index >= 0:  # it was billed
            row.kickoff_id, row.sent_at = line["kickoff_id"], line["started_at"]
            about = {"ended_at": line["ended_at"]}  # its usage is known
            fit(batch, row, line["raw_output"], line["output"], about)
            return True
        case _ if row.index < 0:
            pass
        case Decision.KICK_OFF:
            row.line = None
            batch.pending.append(row)
        case Decision.KICK_OFF_AFTER_END | Decision.KICK_OFF_BY_CHOICE:
            row.lost_at = line["started_at"] if decision is Decision.KICK_OFF_BY_CHOICE else None
            row.kickoff_id, row.sent_at = "", None
            outputs = {name: line.get(name) for name in ("output", "raw_output")}  # it may never start again
            row.end("not_started", usage=usage, **outputs)
            batch.pending.append(row)
            return True
    return False


def _poll(batch: BatchRun, row: Row) -> tuple[PolledStatus, Failed | CallError | None]:
    """Return the status of an execution that an earlier attempt has started, and how it or the poll has failed."""
    return poll_earlier(batch.task, batch.client.status, row.kickoff_id, is_cancelled=row.is_cancelled)
