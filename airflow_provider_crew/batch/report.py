"""Display of a batch: in the Crew tab, in alerts, in its log and its manifest."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_crew.batch.files import FAILED
from airflow_provider_crew.batch.rows import STATUSES, Row, steps_of
from airflow_provider_crew.batch.state import BatchOptions, BatchRun
from airflow_provider_crew.batch.watching import count_of_rows, counted, line_of
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.progress import begun, ended
from airflow_provider_crew.client.wording import duration
from airflow_provider_crew.exceptions import BatchFailed
from airflow_provider_crew.task.decide import KEEPS, RowCounts, Step
from airflow_provider_crew.task.verdict import while_rows_run
from airflow_provider_crew.task.wait import mark_cancels

_MOST_REASONS = 3
_WITHOUT_SUCCESS = ("failed", "uncertain", "running", "waiting")


class Display:
    """Progress of a batch, as ``crew_progress`` has it."""

    def __init__(self, batch: BatchRun) -> None:
        self._batch = batch
        batch.output.progress.if_lost = lambda: self.live()["if_lost"]

    def fields(self) -> dict[str, Any]:
        """Return what the Crew tab and alerts show."""
        batch, state, now = self._batch, self._batch.carried, time.time()
        running = batch.running.keys() | state.outlasting.keys()
        statuses = Counter(row.status for row in batch.rows if row.kickoff_id not in running)
        waiting, uncertain = statuses["not_started"], statuses["uncertain"]
        ends = sum(statuses.values()) - waiting
        numbers = {"total": len(batch.rows), "ended": ends, "unread": 0, "running": len(running)}
        numbers |= {"failed": ends - statuses["success"] - uncertain, "uncertain": uncertain}
        numbers |= {"waiting": 0 if batch.is_blind else waiting, "earlier": state.earlier}
        about = {
            "tokens": state.tokens,
            "estimate": _estimate(state.tokens, state.metered, batch.executions + waiting),
            "reasons": sorted(state.reasons, key=lambda group: -group["count"]),
            "result_path": batch.options.result_path,
        }
        own = {"batch": numbers | about, "doing": line_of(numbers), "since": now, "polled_at": now}
        return begun("", state.started_at) | own | {"deadline": state.deadline}

    def live(self) -> dict[str, Any]:
        """Return the progress of a batch that has not ended."""
        task = self._batch.task
        cancels = bool(self._batch.running) and mark_cancels(task)
        return self.fields() | while_rows_run(self.counts(), cancels=cancels, retries=task.retries_left)

    def completed(self) -> dict[str, Any]:
        """Return the progress of a batch that succeeds, with an end if executions may be running."""
        live, cost = self.live(), self.counts().cost
        lost = live["if_lost"] | {"cost": cost.value, "billed": cost.sentence}
        known = self.fields() | {"state": "completed", "if_lost": lost}
        if cost in {Cost.UNKNOWN, Cost.RUNNING}:
            event = "The batch succeeded, but some of its executions may be running."
            error = CrewError(event, cost=cost, next_step=lost["next_step"])
            known["end"] = lost | ended(known, error, time.time())["end"]
        return known

    def log_end(self) -> None:
        """Log the counts of a batch whose attempt has ended, its tokens and its time."""
        batch, numbers = self._batch, self.fields()["batch"]
        succeeded = f"{numbers['ended'] - numbers['failed'] - numbers['uncertain']:,} succeeded"
        parts = [succeeded, *counted(numbers, *_WITHOUT_SUCCESS), f"{numbers['tokens']:,} tokens in total"]
        took = batch.task.ti.try_number, duration(time.time() - batch.carried.started_at)
        batch.task.log.info("Batch: %s. Attempt %d took %s.", ", ".join(parts), *took)

    def counts(self) -> RowCounts:
        """Return the rows, as the verdict on a batch needs them."""
        batch, state, options = self._batch, self._batch.carried, self._batch.options
        gone = [
            Row(-1, "", "", kickoff_id=name, sent_at=0.0) for name, index in state.outlasting.items() if index < 0
        ]
        rows = [*batch.rows, *gone, *(row for row in batch.running.values() if row.index < 0)]
        retried, cleared = (
            steps_of(rows, cleared=each, rerun=options.rerun, pilot=options.pilot or 0) for each in (False, True)
        )
        may_use_more = bool(batch.running or state.outlasting) and state.tokens < (options.max_tokens or 0)
        return RowCounts(
            retried=retried,
            cleared=cleared,
            lost=state.gone + sum(row.is_lost for row in batch.rows),
            is_billed=state.is_billed,
            is_blind=batch.is_blind,
            runs_all=options.rerun == "all",
            is_spent=batch.affordable <= 0 and not may_use_more,
            is_stuck=self._is_stuck(retried),
            is_stuck_if_cleared=self._is_stuck(cleared),
        )

    def _is_stuck(self, steps: Mapping[Step, int]) -> bool:
        """Whether an attempt starts nothing because of failed rows that it keeps, even if running ones succeed."""
        good = sum(steps.get(step, 0) for step in (("keeps", "successful"), ("waits for", "running")))
        ends = sum(count for (verb, _), count in steps.items() if verb in KEEPS)
        return self._batch.are_too_many(ends - good, ends, self._batch.enough)

    def push_if_due(self, *, is_news: bool = True, known: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Push the progress, if it is due."""
        if self._batch.output.progress.pace.is_due(is_news):
            self.push((known or self.live)())

    def push(self, known: Mapping[str, Any]) -> None:
        """Push the progress."""
        self._batch.output.progress.push(known)


def _estimate(tokens: int, metered: int, rows: int) -> int | None:
    """Return the tokens of all rows if each uses the average, up to two digits. None if no tokens are known."""
    if not metered:
        return None
    exact = tokens / metered * rows
    step: int = 10 ** max(len(f"{exact:.0f}") - 2, 0)
    return math.ceil(exact / step) * step


def manifest(
    batch: BatchRun, reason: str, statuses: Mapping[Any, int], usage: Mapping[str, float]
) -> dict[str, Any]:
    """Return what the task returns."""
    return {
        "schema_version": 1,
        "result_path": batch.options.result_path,
        "request_count": len(batch.rows),
        "counts": {status: statuses[status] for status in STATUSES},
        "terminal_reason": reason,
        "usage": usage,
        "changed": batch.carried.changed,
        "removed": batch.carried.removed,
    }


def too_many_failed(numbers: Mapping[str, Any], options: BatchOptions) -> BatchFailed:
    """Return the error for a batch in which more rows failed than ``max_failed`` allows."""
    groups = numbers["reasons"][:_MOST_REASONS]
    reasons = tuple(f"{group['reason'].rstrip('. ')} ({group['count']:,})" for group in groups)
    counts = f"Of {count_of_rows(numbers['total'])}, {', '.join(counted(numbers, *_WITHOUT_SUCCESS))}"
    details = f"Details: {options.result_path}/{FAILED}"
    event = f"{counts} (max_failed: {options.max_failed}): {', '.join(reasons)}. {details}"
    return BatchFailed(event, reasons=reasons)


def out_of_tokens(batch: BatchRun, numbers: Mapping[str, Any]) -> BatchFailed:
    """Return the error for a batch in which ``max_tokens`` lets no more rows start."""
    state, total, succeeded = batch.carried, numbers["total"], batch.statuses["success"]
    unknown = batch.executions - state.metered
    event = f"{unknown:,} executions have reported no tokens, which max_tokens needs"
    fix = "If the crew never reports them, remove max_tokens, then clear the task"
    if state.metered:
        others = f", if {unknown:,} executions without reported tokens used the average" if unknown else ""
        event = f"max_tokens reached: {state.tokens:,} of {batch.options.max_tokens:,}{others}"
        rest = total - succeeded - numbers["running"]
        needed = _estimate(state.tokens, state.metered, batch.executions + rest)
        fix = f"Raise it (estimate: {needed:,}), then clear the task"
    good = f"{succeeded:,} of {count_of_rows(total)} succeeded"
    counts = ", ".join([good, *counted(numbers, *_WITHOUT_SUCCESS)])
    return BatchFailed(f"{event}. {counts}. {fix}.")
