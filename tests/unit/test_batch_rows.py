"""
What a retry and a cleared task do with a row of a batch, as in docs/batch-reference.md, and why rows failed.

To add a line to ``rows.txt``, write its first three columns.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from airflow_provider_crew.batch.reasons import count_reason
from airflow_provider_crew.batch.rows import Row, RowUsage, decision_of, merged, rows_of
from airflow_provider_crew.batch.state import BatchRun, Carried


def line(key: str = "a", status: str = "success", attempts: int = 1, **more: Any) -> dict[str, Any]:
    known = {"key": key, "fingerprint": "digest", "kickoff_id": "k", "status": status, "attempts": attempts}
    return known | {"index": 9, "error": None, "started_at": 4.0, "ended_at": 1.0, "usage": None} | more


def failed(stage: str, error: str = "", **more: Any) -> dict[str, Any]:
    return {"status": "error", "error": {"type": error, "message": "", "stage": stage}} | more


def sent(kickoff_id: str, attempts: int, at: float = 5.0) -> list[Any]:
    return ["a", "digest", kickoff_id, at, attempts, "", "g"]


WAITED = failed("wait", "WaitedTooLong")
# Lines about the row in the result files, and its kickoffs in the task state store.
LINES: dict[str, dict[str, Any]] = {
    "success": line(),
    "success, 2nd kickoff": line(attempts=2),
    "execution failed": line(**failed("execution", "ExecutionFailed")),
    "kickoff rejected": line(**failed("kickoff", "Rejected")),
    "inputs rejected": line(**failed("inputs", "InvalidInputs")),
    "waited too long": line(**WAITED),
    "waited too long, 2nd kickoff": line(attempts=2, **WAITED),
    "cancelled": line(**failed("execution", "ExecutionCancelled", status="cancelled")),
    "stopped": line(**failed("execution", "ExecutionStopped", status="cancelled")),
    "invalid_output": line(**failed("output", "InvalidOutput", status="invalid_output")),
    "uncertain": line(**failed("kickoff", "UncertainKickoff", status="uncertain", kickoff_id=None)),
    "not_started": line(status="not_started", attempts=0),
    "not_started after uncertain": line(status="not_started", kickoff_id=None),
}
KICKOFFS = {
    "sent": sent("", 1),
    "sent again": sent("", 2),
    "k1": sent("k1", 1),
    "sent later": sent("", 1, at=6.0),
    "k1 later": sent("k1", 1, at=6.0),
    "k2 again": sent("k2", 2),
}


# Whether the task was cleared, and ``rerun``.
ATTEMPTS: list[Any] = [
    (False, "failed"),
    (True, "failed"),
    (True, "all"),
]


def meaning(lines: str, kickoffs: str, status: Any) -> tuple[str, ...]:
    """Return what is known of a row, and the decisions of each kind of attempt."""
    row = Row(0, "a", "digest")
    known = [LINES[name] for name in lines.split("; ") if name]
    assert merged([row], known, [KICKOFFS[name] for name in kickoffs.split("; ") if name]) == []
    assert not row.line or row.line["index"] == 0
    assert row.sent_at is None or row.group == "g"
    is_lost = ", lost" if row.is_lost else ""
    known_id = (row.line or {}).get("kickoff_id") or "-"
    found = f"{row.status} {row.kickoff_id or '-'} {row.sent_at or '-'} {row.attempts}{is_lost} ({known_id})"
    made = (decision_of(row, status or None, cleared=clear, rerun=rerun) for clear, rerun in ATTEMPTS)
    return found, *(each.name for each in made)


def test_rows_go_on_as_in_the_table(tabulated: Any) -> None:
    tabulated("rows.txt", 3, meaning)


def test_reasons_of_many_rows_stay_small():
    groups: list[dict[str, Any]] = []
    for number in range(10_000):
        count_reason(groups, "k" * 200, "error", f"{number}: {'r' * 2_000}")

    assert len(json.dumps(groups)) < 64 * 1024


def reasons() -> list[tuple[Any, ...]]:
    """Return the most common of some reasons of failed rows."""
    groups: list[dict[str, Any]] = []
    for number in range(4):
        count_reason(groups, f"late {number}", "error", f"Execution 57a13a6e-0d6f-{number} ran for {number}m 10s.")
    for status in ("error", "uncertain"):
        count_reason(groups, "gone", status, "503: no response")
    count_reason(groups, "poor", "error", "402: out of credit")
    for number in range(5):
        count_reason(groups, f"busy {number}", "error", "503: busy")
    return [
        (each["count"], each["status"], each["reason"], each["keys"])
        for each in sorted(groups, key=lambda group: -group["count"])
    ]


def spent(*lines: tuple[Any, ...]) -> Any:
    """Return the token usage after lines about a row: attempts, time, tokens, whether final, and name."""
    usage, found = RowUsage(), None
    for attempts, at, tokens, is_final, *name in lines:
        known = {"attempts": attempts, "ended_at": at, "usage": tokens and {"total_tokens": tokens, "model": "x"}}
        found = usage.with_line(LINES[name[0] if name else "success"] | known, is_final=is_final)
    return found


def test_row_that_succeeded_after_an_uncertain_kickoff_is_certain():
    batch: Any = SimpleNamespace(rows=rows_of([{}], None, None), running={}, files=SimpleNamespace(number=0))
    batch.clock = SimpleNamespace(jump=0)
    batch.carried, row = Carried(plan=[], deadline=0.0, started_at=0.0, logged_at=0.0), batch.rows[0]
    row.lost_at, row.kickoff_id = 5.0, "k"
    row.remember("success", None, None)
    carried, batch.rows, batch.pending = BatchRun.carry(batch), rows_of([{}], None, None), []
    BatchRun.restore(batch, carried, {})
    assert (batch.rows[0].status, batch.rows[0].is_lost) == ("success", False)
