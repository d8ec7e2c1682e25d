"""Uncertain rows of a batch that settle themselves, because their crews have called."""

import time
from contextlib import suppress

from airflow_provider_crew.batch.collect import store_ends
from airflow_provider_crew.batch.files import SENT
from airflow_provider_crew.batch.rows import LONGEST_KEY, Row, with_execution
from airflow_provider_crew.batch.state import Board
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.task.record import BATCH
from airflow_provider_crew.task.settle import settles_until


def settle_rows(board: Board, *, is_last: bool = False) -> bool:
    """
    Continue with uncertain rows whose crews have called, and end those whose crews have not called in time.

    Return whether there is news. Between two looks, there is none.
    """
    if not board.settling or (time.time() < board.looks_at and not is_last):
        return False
    board.looks_at, news = min(time.time() + timing.current().settle_look, time_to_settle(board)), []
    called = board.store.heard_now([row.call for row in board.settling.values()])
    for row in [*board.settling.values()]:
        if (kickoff_id := called.get(row.call)) and kickoff_id not in board.running:
            _continue(board, row, kickoff_id)
        elif is_last or time.time() >= settles_until(row.sent_at or 0.0):
            board.output.measure("kickoff.uncertain")
            store_ends(board, [row])
        else:
            continue
        news.append(board.settling.pop(row.index))
    return bool(news)


def time_to_settle(board: Board) -> float:
    """Return the time at which the last uncertain row is given up."""
    return max((settles_until(row.sent_at or 0.0) for row in board.settling.values()), default=0.0)


def _continue(board: Board, row: Row, kickoff_id: str) -> None:
    """Wait for an execution that has started, and record its ID as the command ``adopt`` does."""
    row.kickoff_id, row.line = kickoff_id, None
    board.running[kickoff_id] = row
    board.state.outage_since, board.state.not_before = None, 0.0  # the crew does respond
    board.output.measure("kickoff.started")
    name = one_line(row.key, LONGEST_KEY), kickoff_id
    board.task.log.info("Row %s has no response, but its crew has called: execution %s has started.", *name)
    with suppress(Exception):  # what the crew has called is stored as well
        group = f"{BATCH}_{row.group}"
        lines = [with_execution(line, row.key, kickoff_id) for line in board.store.get(group, is_patient=False)]
        board.store.set(group, lines, is_patient=False)
        board.files.write(f"{SENT}/{row.group}", lines)  # clearing may delete the store's
