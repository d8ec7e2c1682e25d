"""
What a retry and a cleared task do with a row of a batch, as in docs/batch-reference.md, and why rows failed.

To add a line to ``rows.txt``, write its first three columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.batch.reasons import count_reason, most_common
from airflow_provider_crew.batch.rows import (
    LONGEST_KEY,
    Row,
    Spent,
    decision_of,
    failure,
    last_kickoff,
    lines_of,
    merged,
    rows_of,
    with_execution,
)
from airflow_provider_crew.client import errors
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import BATCH, fingerprint


def line(key: str = "a", status: str = "success", attempts: int = 1, **more: Any) -> dict[str, Any]:
    known = {"key": key, "fingerprint": "digest", "kickoff_id": "k", "status": status, "attempts": attempts}
    return known | {"index": 9, "error": None, "started_at": 4.0, "ended_at": 1.0, "usage": None} | more


def failed(stage: str, error: str = "", **more: Any) -> dict[str, Any]:
    return {"status": "error", "error": {"type": error, "message": "", "stage": stage}} | more


def sent(kickoff_id: str, attempts: int, *call: str, at: float = 5.0) -> list[Any]:
    return ["a", "digest", kickoff_id, at, attempts, *call, "g"]


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
    "called as k1": sent("k1", 1, "call"),
    "has not called": sent("", 1, "call"),
}


# Whether the task was cleared, on_uncertain_kickoff="retry", and ``rerun``.
ATTEMPTS: list[Any] = [
    (False, False, "failed"),
    (False, True, "all"),
    (True, False, "failed"),
    (True, False, "all"),
]


def decisions(row: Row, status: Any) -> str:
    made = (
        decision_of(row, status, cleared=clear, chooses_twice=twice, rerun=rerun)
        for clear, twice, rerun in ATTEMPTS
    )
    return " | ".join(f"{each.name:<18}" for each in made).rstrip()


def table(written: list[str]) -> Iterator[str]:
    for told in written:
        cells = [cell.strip() for cell in told.split("|")]
        if len(cells) < 3 or told.startswith("#"):
            yield told
            continue
        lines, kickoffs, status = cells[:3]
        row = Row(0, "a", "digest")
        known = [LINES[name] for name in lines.split("; ") if name]
        assert merged([row], known, [KICKOFFS[name] for name in kickoffs.split("; ") if name]) == []
        assert not row.line or row.line["index"] == 0
        assert row.sent_at is None or row.group == "g"
        is_lost = ", lost" if row.is_lost else ""
        known_id = (row.line or {}).get("kickoff_id") or "-"
        found = f"{row.status} {row.kickoff_id or '-'} {row.sent_at or '-'} {row.attempts}{is_lost} ({known_id})"
        yield f"{lines:<42} | {kickoffs:<18} | {status:<10} | {found:<25} | {decisions(row, status or None)}"


def test_rows_go_on_as_in_the_table(printed: Any) -> None:
    printed("rows.txt", table)


def test_failed_rows_are_grouped_by_reason():
    groups: list[dict[str, Any]] = []
    for number in range(4):
        count_reason(groups, f"late {number}", "error", f"Execution 57a13a6e-0d6f-{number} ran for {number}m 10s.")
    for status in ("error", "uncertain"):
        count_reason(groups, "gone", status, "503: no response")
    count_reason(groups, "poor", "error", "402: out of credit")
    for number in range(5):
        count_reason(groups, f"busy {number}", "error", "503: busy")

    found = [(each["count"], each["status"], each["reason"], each["keys"]) for each in most_common(groups)]
    assert found == [
        (5, "error", "503: busy", ["busy 0", "busy 1", "busy 2"]),
        (4, "error", "Execution 57a13a6e-0d6f-0 ran for 0m 10s.", ["late 0", "late 1", "late 2"]),
        (1, "error", "503: no response", ["gone"]),
        (1, "uncertain", "503: no response", ["gone"]),
        (1, "error", "402: out of credit", ["poor"]),
    ]


def test_reasons_of_many_rows_stay_small():
    groups: list[dict[str, Any]] = []
    for number in range(10_000):
        count_reason(groups, "k" * 200, "error", f"{number}: {'r' * 2_000}")

    assert len(json.dumps(groups)) < 64 * 1024


TOPICS = [{"topic": "ferries"}, {"topic": "trains"}]
NO_ROWS: list[Any] = ["a text", b"bytes", TOPICS[0], 7, None, []]
LONGEST = "k" * LONGEST_KEY


@pytest.mark.parametrize(
    ("given", "key", "names"),
    [
        (TOPICS, None, ["0", "1"]),
        (tuple(TOPICS), "topic", ["ferries", "trains"]),
        ([{"id": 0}, {"id": 7}], "id", ["0", "7"]),
        ([{"id": LONGEST}], "id", [LONGEST]),
    ],
)
def test_row_is_named_by_its_key_or_its_position(given, key, names):
    rows = rows_of(given, key, "state")

    assert [(each.key, each.index) for each in rows] == [(name, index) for index, name in enumerate(names)]
    assert [each.fingerprint for each in rows] == [fingerprint(each.inputs, "state") for each in rows]


def test_row_of_a_failed_file_has_its_inputs():
    line = {"key": "7", "index": 3, "status": "error", "inputs": TOPICS[0], "error": None}
    more = line | {"note": ""}

    assert [each.inputs for each in rows_of([line, more], None, None)] == [TOPICS[0], more]


@pytest.mark.parametrize(
    ("given", "key", "what"),
    [
        *((given, None, "inputs") for given in NO_ROWS),
        *(([{"id": value}], "id", "inputs[0]") for value in (None, "", f"{LONGEST}k")),
        ([*TOPICS, "text"], None, "inputs[2]"),
        ([*TOPICS, {"topic": ""}], "topic", "inputs[2]"),
        ([*TOPICS, {"topic": object()}], None, "inputs[2]"),
        (TOPICS, "id", "inputs[0]"),
        ([*TOPICS, TOPICS[0]], "topic", "ferries"),
    ],
)
def test_unusable_row_is_named_before_anything_is_sent(given, key, what):
    with pytest.raises(errors.InvalidInputs, match=re.escape(what)):
        rows_of(given, key, None)


def test_line_of_a_file_is_read_unless_it_is_empty():
    assert list(lines_of(['{"a": 1}\n', "  \n", "[]"], "rows.jsonl")) == [{"a": 1}, []]
    with pytest.raises(errors.InvalidInputs, match="Line 3 of rows.jsonl"):
        list(lines_of(["{}\n", "\n", "{"], "rows.jsonl"))


def test_rows_that_are_no_longer_among_the_inputs_are_returned():
    rows = [Row(0, "a", "digest"), Row(1, "b", "digest")]
    kickoffs = [["c", "digest", "", 5.0, 1, "g"], ["a", "other", "k2", 6.0, 1, "g"]]
    removed = merged(rows, [line("b"), line("d", **WAITED)], kickoffs)

    assert [(each.index, each.key, each.fingerprint) for each in removed] == [
        (-1, "d", "digest"),
        (-1, "c", "digest"),
        (-1, "a", "other"),
    ]
    assert [(each.kickoff_id, each.sent_at) for each in removed] == [("k", None), ("", 5.0), ("k2", 6.0)]
    assert [each.status for each in rows] == ["not_started", "success"]


def test_last_kickoff_of_a_row_is_found_in_its_group():
    entries = {
        BATCH: {"groups": ["1", "3", "2"]},
        f"{BATCH}_3": [["a", "digest", "k1", 5.0, 1, "3"], ["b", "digest", "k3", 5.0, 3, "3"]],
        f"{BATCH}_2": [["a", "digest", "", 4.0, 2, "2"], ["d", "digest", "k4", 4.0, 2, "call", "2"]],
    }

    assert last_kickoff(entries, "a") == (f"{BATCH}_2", KickoffRecord(0, 4.0))
    assert last_kickoff(entries, "b") == (f"{BATCH}_3", KickoffRecord(0, 5.0, "k3"))
    assert last_kickoff(entries, "d") == (f"{BATCH}_2", KickoffRecord(0, 4.0))
    for unknown in (last_kickoff(entries, "c"), last_kickoff({BATCH: {}}, "a"), last_kickoff({}, "a")):
        assert unknown == ("", None)


def test_only_the_row_itself_gets_an_execution():
    assert with_execution(sent("", 1), "a", "k") == sent("k", 1)
    assert with_execution(sent("", 1), "b", "k") == sent("", 1)


def test_line_about_a_row_has_all_fields():
    found = Row(3, "a", "digest", sent_at=5.0, kickoff_id="k", attempts=2)
    found.end("success", output={"title": "x"})
    written: Any = found.line

    assert written.pop("ended_at") > 5.0
    assert written == {
        "key": "a",
        "index": 3,
        "fingerprint": "digest",
        "kickoff_id": "k",
        "status": "success",
        "output": {"title": "x"},
        "raw_output": None,
        "error": None,
        "usage": None,
        "attempts": 2,
        "started_at": 5.0,
    }
    assert Row(0, "a", "digest").as_line("not_started")["kickoff_id"] is None
    assert Row(0, "a", "digest", sent_at=5.0, group="g").sent() == sent("", 0)
    assert Row(0, "a", "digest", sent_at=5.0, call="call", group="g").sent() == sent("", 0, "call")


def test_error_of_a_row_is_one_limited_line():
    told = failure(errors.ExecutionFailed(f"out of\ncredit {'x' * 5_000}"), "execution")

    assert (told["type"], told["stage"]) == ("ExecutionFailed", "execution")
    assert told["message"].startswith("out of credit")
    assert 1_000 < len(told["message"]) <= 2_001


# Lines whose execution may still end.
OPEN = ("waited too long", "uncertain", "not_started after uncertain")


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        ([(1, 9.0, None, False), (1, 2.0, 3, False)], 3),  # a slow clock
        ([(1, 1.0, 3, False), (1, 1.0, 3, False), (2, 1.0, 4, False)], 7),
        ([(2, 5.0, 7, True), (1, 1.0, 3, False), (2, 5.0, 4, False)], 7),  # parts that were not deleted
        ([(1, 1.0, 3, True), (2, 2.0, 7, True), (2, 2.0, 4, False), (3, 3.0, 1, False)], 8),
        ([(1, 1.0, 3, True), (1, 2.0, 4, True)], 4),
        *(([(2, 1.0, 3, True, name), (2, 2.0, 4, False)], 7) for name in OPEN),
        *(([(2, 2.0, 7, True), (2, 1.0, 3, True, name), (2, 2.0, 4, False)], 7) for name in OPEN),
        ([(1, 1.0, 3, False), (1, 2.0, 0, False)], 3),  # a line without usage
        # of a run that was created again
        ([(3, 3.0, 5, False), (1, 1.0, 3, False), (2, 2.0, 4, False)], 12),
    ],
)
def test_token_usage_counts_each_kickoff_once(lines, total):
    spent = Spent()
    counts = [
        spent.with_line(
            LINES[name[0] if name else "success"]
            | {"attempts": attempts, "ended_at": at, "usage": tokens and {"total_tokens": tokens, "model": "x"}},
            is_final=is_final,
        )
        for attempts, at, tokens, is_final, *name in lines
    ]
    assert counts[-1] == {"total_tokens": total}
