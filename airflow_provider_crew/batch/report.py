"""Display of a batch: in the Crew tab, in alerts, in its log and its manifest."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_crew.batch.budget import estimate
from airflow_provider_crew.batch.files import FAILED
from airflow_provider_crew.batch.reasons import most_common
from airflow_provider_crew.batch.rows import STATUSES, Row, step_of
from airflow_provider_crew.batch.state import BatchOptions, Board
from airflow_provider_crew.batch.watching import counted, line_of
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.progress import begun, ended
from airflow_provider_crew.client.wording import duration
from airflow_provider_crew.exceptions import BatchFailed
from airflow_provider_crew.task.verdict import KEEPS, RowCounts, Step, while_rows_run

_MOST_REASONS = 3
_WITHOUT_SUCCESS = ("failed", "uncertain", "running", "waiting")


class Report:
    """Progress of a batch, as ``crew_progress`` has it."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def known(self) -> dict[str, Any]:
        """Return what the Crew tab and alerts show."""
        board, state, now = self._board, self._board.state, time.time()
        running = board.running.keys() | state.left.keys()
        statuses = Counter(row.status for row in board.rows if row.kickoff_id not in running)
        waiting, uncertain = statuses["not_started"], statuses["uncertain"]
        ends = sum(statuses.values()) - waiting
        batch = {"total": len(board.rows), "ended": ends, "unread": 0, "running": len(running)}
        batch |= {"failed": ends - statuses["success"] - uncertain, "uncertain": uncertain}
        batch |= {"waiting": 0 if board.is_blind else waiting, "earlier": state.earlier}
        about = {
            "tokens": state.tokens,
            "estimate": estimate(state.tokens, state.metered, board.executions + waiting),
            "reasons": most_common(state.reasons),
            "result_path": board.options.result_path,
        }
        told = {"batch": batch | about, "doing": line_of(batch), "since": now, "polled_at": now}
        return begun("", state.started_at) | told | {"deadline": state.deadline}

    def live(self) -> dict[str, Any]:
        """Return the progress of a batch that has not ended."""
        cancels = bool(self._board.running) and self._board.task.cancels_on("kill")
        return self.known() | while_rows_run(self.counts(), cancels=cancels)

    def completed(self) -> dict[str, Any]:
        """Return the progress of a batch that succeeds, with an end if executions may be running."""
        live, cost = self.live() | {"state": "completed"}, self.counts().cost
        if cost in {Cost.UNKNOWN, Cost.RUNNING}:
            event = "The batch succeeded, but some of its executions may be running."
            error = CrewError(event, cost=cost, next_step=live["if_lost"]["next_step"])
            live["end"] = live["if_lost"] | ended(live, error, time.time())["end"]
        return live

    def log_end(self) -> None:
        """Log the counts of a batch whose attempt has ended, its tokens and its time."""
        board, batch = self._board, self.known()["batch"]
        succeeded = f"{batch['ended'] - batch['failed'] - batch['uncertain']:,} succeeded"
        parts = [succeeded, *counted(batch, *_WITHOUT_SUCCESS), f"{batch['tokens']:,} tokens in total"]
        took = board.task.ti.try_number, duration(time.time() - board.state.started_at)
        board.task.log.info("Batch: %s. Attempt %d took %s.", ", ".join(parts), *took)

    def counts(self) -> RowCounts:
        """Return the rows, as the verdict on a batch needs them."""
        board, state, options = self._board, self._board.state, self._board.options
        gone = [Row(-1, "", "", kickoff_id=name, sent_at=0.0) for name, index in state.left.items() if index < 0]
        rows = [*board.rows, *gone, *(row for row in board.running.values() if row.index < 0)]
        retried, cleared = (
            Counter(step_of(row, cleared=is_cleared, rerun=options.rerun) for row in rows)
            for is_cleared in (False, True)
        )
        may_use_more = bool(board.running or state.left) and state.tokens < (options.max_tokens or 0)
        return RowCounts(
            retried=retried,
            cleared=cleared,
            lost=state.gone + sum(row.is_lost for row in board.rows),
            is_billed=state.is_billed,
            is_blind=board.is_blind,
            runs_all=options.rerun == "all",
            is_spent=board.affordable <= 0 and not may_use_more,
            is_stuck=self._is_stuck(retried),
            is_stuck_if_cleared=self._is_stuck(cleared),
        )

    def _is_stuck(self, steps: Mapping[Step, int]) -> bool:
        """Whether an attempt starts nothing because of failed rows that it keeps, even if running ones succeed."""
        good = sum(steps.get(step, 0) for step in (("keeps", "successful"), ("waits for", "running")))
        kept = sum(count for (verb, _), count in steps.items() if verb in KEEPS)
        return self._board.are_too_many(kept - good, kept, self._board.enough)

    def push_if_due(self, *, is_news: bool = True, known: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Push the progress, if it is due."""
        if self._board.output.progress.pace.is_due(is_news):
            self.push((known or self.live)())

    def push(self, known: Mapping[str, Any]) -> None:
        """Push the progress."""
        self._board.output.progress.push(known)


def manifest(board: Board, reason: str, statuses: Mapping[Any, int], usage: Mapping[str, float]) -> dict[str, Any]:
    """Return what the task returns."""
    return {
        "schema_version": 1,
        "result_path": board.options.result_path,
        "request_count": len(board.rows),
        "counts": {status: statuses[status] for status in STATUSES},
        "terminal_reason": reason,
        "usage": usage,
        "changed": board.state.changed,
        "removed": board.state.removed,
    }


def too_many_failed(batch: Mapping[str, Any], options: BatchOptions) -> BatchFailed:
    """Return the error for a batch in which more rows failed than ``max_failed`` allows."""
    groups = batch["reasons"][:_MOST_REASONS]
    reasons = tuple(f"{group['reason'].rstrip('. ')} ({group['count']:,})" for group in groups)
    counts = f"Of {batch['total']:,} rows, {', '.join(counted(batch, *_WITHOUT_SUCCESS))}"
    details = f"Details: {options.result_path}/{FAILED}"
    event = f"{counts} (max_failed: {options.max_failed}): {', '.join(reasons)}. {details}"
    return BatchFailed(event, reasons=reasons)


def spent(board: Board, batch: Mapping[str, Any]) -> BatchFailed:
    """Return the error for a batch in which ``max_tokens`` lets no more rows start."""
    state, total, succeeded = board.state, batch["total"], board.statuses["success"]
    unknown = board.executions - state.metered
    event = f"{unknown:,} executions have reported no tokens, which max_tokens needs"
    fix = "If the crew never reports them, remove max_tokens, then clear the task"
    if state.metered:
        others = f", if {unknown:,} executions without reported tokens used the average" if unknown else ""
        event = f"max_tokens reached: {state.tokens:,} of {board.options.max_tokens:,}{others}"
        left = total - succeeded - batch["running"]
        needed = estimate(state.tokens, state.metered, board.executions + left)
        fix = f"Raise it (estimate: {needed:,}), then clear the task"
    counts = ", ".join([f"{succeeded:,} of {total:,} rows succeeded", *counted(batch, *_WITHOUT_SUCCESS)])
    return BatchFailed(f"{event}. {counts}. {fix}.")
