"""Display of a batch: in the Crew tab, in alerts, in its log and its manifest."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from airflow_provider_crew.batch.facts import STATUSES
from airflow_provider_crew.batch.fold import Row, steps_of
from airflow_provider_crew.batch.results import FAILED, RESULTS
from airflow_provider_crew.batch.state import BatchRun
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
        self.has_files = False
        """Whether this attempt has written its result files."""
        batch.output.progress.if_lost = lambda: self.live()["if_lost"]

    def fields(self) -> dict[str, Any]:
        """Return what the Crew tab and alerts show."""
        batch, state, now = self._batch, self._batch.carried, time.time()
        rows, states = batch.rows, batch.rows.states
        running = states["running"] + states["left"] + len(self._removed)
        ends = batch.ended - states["left"]
        numbers = {"total": len(rows.given), "ended": ends, "unread": 0, "running": running}
        numbers |= {"failed": ends - states["success"] - states["uncertain"], "uncertain": states["uncertain"]}
        numbers |= {"waiting": 0 if batch.is_blind else states["not_started"], "earlier": state.earlier}
        about = {
            "executions": rows.sums.executions,
            "tokens": rows.sums.tokens,
            "estimate": self._estimate(states["not_started"]),
            "reasons": sorted(state.reasons, key=lambda group: -group["count"]),
            "result_path": "" if "{{" in batch.options.result_path else batch.options.result_path,
            "failed_path": f"{batch.files.path}/{batch.files.name_of(FAILED)}" if self.has_files else "",
            "pilot": self._pilot(),
        }
        if batch.pending and batch.is_spent:
            about |= {"stopped_by": "max_tokens", "needed": round(self._average * states["not_started"])}
        elif about["pilot"] and batch.has_too_many_failed(batch.failed):
            about["stopped_by"] = "pilot"
        own = {"batch": numbers | about, "doing": line_of(numbers), "since": now, "polled_at": now}
        return begun("", state.started_at) | own | {"deadline": state.deadline}

    def _pilot(self) -> dict[str, int] | None:
        """Return the rows of a pilot for which others wait. None if there is none."""
        rows = self._batch.rows.given
        size = min(self._batch.options.pilot or 0, len(rows))
        if not 0 < size < len(rows) or any(row.state != "not_started" for row in rows[size:]):
            return None
        states = Counter(row.state for row in rows[:size])
        ends = size - states["not_started"] - states["running"]
        return {"total": size, "ended": ends, "failed": ends - states["success"]}

    @property
    def _removed(self) -> list[Row]:
        """Rows that are no longer among the inputs, and whose executions may be running."""
        return [row for row in self._batch.rows.removed if row.state in {"running", "left"}]

    @property
    def _average(self) -> float:
        """Tokens of an execution. 0 if no execution has reported any."""
        return self._batch.rows.sums.tokens / (self._batch.rows.sums.metered or 1)

    def _estimate(self, more: int) -> int | None:
        """Return the tokens of all rows, up to two digits, if each used the average. None if that is unknown."""
        sums = self._batch.rows.sums
        if not sums.metered:
            return None
        exact = self._average * (sums.executions + more)
        step: int = 10 ** max(len(f"{exact:.0f}") - 2, 0)
        return math.ceil(exact / step) * step

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
        batch, options, sums = self._batch, self._batch.options, self._batch.rows.sums
        rows = [*batch.rows.given, *self._removed]
        retried, cleared = (
            steps_of(rows, why=batch.why(cleared=each), pilot=options.pilot or 0) for each in (False, True)
        )
        may_use_more = ("waits for", "running") in retried and sums.tokens < (options.max_tokens or 0)
        return RowCounts(
            retried=retried,
            cleared=cleared,
            lost=batch.carried.gone + sum(row.is_lost for row in batch.rows.given),
            executions=sums.executions,
            tokens=sums.tokens,
            is_blind=batch.is_blind,
            runs_all=options.rerun == "all",
            is_limited=options.max_tokens is not None,
            is_spent=batch.affordable <= 0 and not may_use_more,
            is_stuck=self._is_stuck(retried),
            is_stuck_if_cleared=self._is_stuck(cleared),
        )

    def _is_stuck(self, steps: Mapping[Step, int]) -> bool:
        """Whether an attempt starts no rows because of failed rows that it keeps, even if running ones succeed."""
        good = sum(steps.get(step, 0) for step in (("keeps", "successful"), ("waits for", "running")))
        ends = sum(count for (verb, _), count in steps.items() if verb in KEEPS)
        return self._batch.are_too_many(ends - good, ends, self._batch.enough)

    def why_stopped(self) -> tuple[str, BatchFailed | None]:
        """Return why the batch ends, in a word, and the error with which it fails."""
        batch, is_partial = self._batch, self._batch.failed > 0
        if batch.has_too_many_failed(batch.failed):
            return "too_many_failed", self._too_many_failed()
        if batch.pending and batch.is_spent:
            return "max_tokens", self._out_of_tokens()
        return "partial" if is_partial or batch.pending else "succeeded", None

    def _too_many_failed(self) -> BatchFailed:
        """Return the error for a batch in which more rows failed than ``max_failed`` allows."""
        numbers, files = self.fields()["batch"], self._batch.files
        groups = numbers["reasons"][:_MOST_REASONS]
        reasons = tuple(f"{group['reason'].rstrip('. ')} ({group['count']:,})" for group in groups)
        pilot = numbers["pilot"]
        which = f"The pilot failed: {pilot['failed']:,} of {count_of_rows(pilot['total'])}. " if pilot else ""
        counts = f"Of {count_of_rows(numbers['total'])}, {', '.join(counted(numbers, *_WITHOUT_SUCCESS))}"
        limit = f"(max_failed: {self._batch.options.max_failed})"
        details = f"Details: {files.path}/{files.name_of(FAILED)}"
        # A log may show no more than the first words.
        return BatchFailed(f"{', '.join(reasons)}. {which}{counts} {limit}. {details}", reasons=reasons)

    def _out_of_tokens(self) -> BatchFailed:
        """Return the error for a batch in which ``max_tokens`` lets no more rows start."""
        rows, numbers = self._batch.rows, self.fields()["batch"]
        tokens, metered, executions, _ = rows.sums
        unknown = executions - metered
        event = f"{unknown:,} executions have reported no tokens, which max_tokens needs"
        fix = "If the crew never reports them, remove max_tokens, then clear the task"
        if metered:
            others = f", if {unknown:,} executions without reported tokens used the average" if unknown else ""
            event = f"max_tokens reached: {tokens:,} of {self._batch.options.max_tokens:,}{others}"
            needed = self._estimate(numbers["total"] - rows.states["success"] - numbers["running"])
            fix = f"Raise it (estimate: {needed:,}), then clear the task"
        good = f"{rows.states['success']:,} of {count_of_rows(numbers['total'])} succeeded"
        counts = ", ".join([good, *counted(numbers, *_WITHOUT_SUCCESS)])
        return BatchFailed(f"{event}. {counts}. {fix}.")

    def push_if_due(self, *, is_news: bool = True) -> None:
        """Push the progress, if it is due."""
        if self._batch.output.progress.pace.is_due(is_news):
            self.push(self.live())

    def push(self, known: Mapping[str, Any]) -> None:
        """Push the progress."""
        self._batch.output.progress.push(known)


def manifest(
    batch: BatchRun, reason: str, statuses: Mapping[Any, int], usage: Mapping[str, float]
) -> dict[str, Any]:
    """Return what the task returns."""
    return {
        "schema_version": 1,
        "result_path": batch.options.result_path,
        **{kind: f"{batch.files.path}/{batch.files.name_of(kind)}" for kind in (RESULTS, FAILED)},
        "request_count": len(batch.rows.given),
        "counts": {status: statuses[status] for status in STATUSES},
        "terminal_reason": reason,
        "usage": usage,
        "changed": (changed := batch.rows.changed),
        "removed": len(batch.rows.removed) - changed,
    }
