"""What a retry and a cleared task do with a row of a batch, as in docs/batch-reference.md, and why rows failed."""

from __future__ import annotations

import json
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
from airflow_provider_crew.task.decide import Decision, KickoffRecord
from airflow_provider_crew.task.record import BATCH, fingerprint

ANOTHER = Decision.KICK_OFF_AFTER_END
KEPT = Decision.REATTACH
CHOSEN = Decision.KICK_OFF_BY_CHOICE


def row(status: str, *, stage: str = "", error: str = "", **sent: Any) -> Row:
    known: dict[str, Any] | None = None
    if status:
        failure = {"type": error, "message": "", "stage": stage} if stage else None
        known = {"status": status, "error": failure, "kickoff_id": "57a13a6e", "ended_at": 1.0}
    return Row(0, "key", "digest", line=known, **sent)


@pytest.mark.parametrize(
    ("found", "retried", "cleared"),
    [
        (row(""), Decision.KICK_OFF, Decision.KICK_OFF),
        (row("", sent_at=1.0, kickoff_id="57a13a6e"), Decision.ASK, Decision.ASK),
        (row("", sent_at=1.0), Decision.FAIL_UNCERTAIN, Decision.FAIL_UNCERTAIN),
        (row("success"), KEPT, KEPT),
        (row("error", stage="execution", error="ExecutionFailed"), ANOTHER, ANOTHER),
        (row("error", stage="kickoff", error="Rejected"), Decision.KICK_OFF, Decision.KICK_OFF),
        (row("error", stage="inputs", error="InvalidInputs"), Decision.KICK_OFF, Decision.KICK_OFF),
        (row("error", stage="wait", error="WaitedTooLong"), Decision.ASK, Decision.ASK),
        (row("cancelled", stage="execution", error="ExecutionCancelled"), ANOTHER, ANOTHER),
        (row("cancelled", stage="execution", error="ExecutionStopped"), Decision.FAIL_STOPPED, ANOTHER),
        (row("invalid_output", stage="output", error="InvalidOutput"), KEPT, KEPT),
        (row("uncertain", stage="kickoff", error="UncertainKickoff"), Decision.FAIL_UNCERTAIN, CHOSEN),
        (row("not_started"), Decision.KICK_OFF, Decision.KICK_OFF),
    ],
)
def test_row_is_started_again_only_if_nothing_is_lost(found, retried, cleared):
    for is_cleared, expected in ((False, retried), (True, cleared)):
        assert decision_of(found, cleared=is_cleared, chooses_twice=False, rerun="failed") is expected


@pytest.mark.parametrize(
    ("status", "retried", "cleared"),
    [
        ("running", KEPT, KEPT),
        ("unknown", KEPT, KEPT),
        ("unreadable", KEPT, KEPT),
        ("completed", KEPT, KEPT),
        ("failed", ANOTHER, ANOTHER),
        ("stopped", Decision.FAIL_STOPPED, ANOTHER),
    ],
)
def test_row_that_may_be_running_is_decided_by_its_status(status, retried, cleared):
    for found in (row("", sent_at=1.0, kickoff_id="57a13a6e"), row("error", stage="wait", error="WaitedTooLong")):
        for is_cleared, expected in ((False, retried), (True, cleared)):
            decided = decision_of(found, status, cleared=is_cleared, chooses_twice=False, rerun="failed")
            assert decided is expected


@pytest.mark.parametrize("status", ["success", "invalid_output"])
def test_completed_row_runs_again_only_if_cleared_with_rerun_all(status):
    found = row(status, stage="output" if status == "invalid_output" else "")

    assert decision_of(found, cleared=False, chooses_twice=False, rerun="all") is KEPT
    assert decision_of(found, cleared=True, chooses_twice=False, rerun="all") is ANOTHER


@pytest.mark.parametrize("found", [row("", sent_at=1.0), row("uncertain", stage="kickoff")])
def test_uncertain_row_is_retried_if_the_author_prefers_that(found):
    assert decision_of(found, cleared=False, chooses_twice=True, rerun="failed") is CHOSEN


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
    ("given", "key"),
    [
        *((given, None) for given in ("a text", b"bytes", TOPICS[0], 7, None, [], [TOPICS[0], "text"])),
        *(([{"id": value}], "id") for value in (None, "", f"{LONGEST}k")),
        (TOPICS, "id"),
        ([*TOPICS, TOPICS[0]], "topic"),
        ([{"topic": object()}], None),
    ],
)
def test_unusable_rows_are_rejected_before_anything_is_sent(given, key):
    with pytest.raises(errors.InvalidInputs) as caught:
        rows_of(given, key, None)

    assert " " in caught.value.event


def test_rejected_row_is_named_by_its_position():
    for given, key in (([*TOPICS, "text"], None), ([*TOPICS, {"topic": ""}], "topic")):
        with pytest.raises(errors.InvalidInputs, match=r"inputs\[2\]"):
            rows_of(given, key, None)
    with pytest.raises(errors.InvalidInputs, match=r"inputs\[2\]"):
        rows_of([*TOPICS, {"topic": object()}], None, None)
    with pytest.raises(errors.InvalidInputs, match="Line 3 of rows.jsonl"):
        list(lines_of(["{}\n", "\n", "{"], "rows.jsonl"))


def test_line_of_a_file_is_read_unless_it_is_empty():
    assert list(lines_of(['{"a": 1}\n', "  \n", "[]"], "rows.jsonl")) == [{"a": 1}, []]


def line(key: str = "a", status: str = "success", attempts: int = 1, **more: Any) -> dict[str, Any]:
    known = {"key": key, "fingerprint": "digest", "kickoff_id": "k", "status": status, "attempts": attempts}
    return known | {"index": 9, "error": None, "ended_at": 1.0, "usage": None} | more


WAITED: dict[str, Any] = {"error": {"type": "WaitedTooLong", "message": "", "stage": "wait"}}


def sent(kickoff_id: str, attempts: int, *call: str, at: float = 5.0) -> list[Any]:
    return ["a", "digest", kickoff_id, at, attempts, *call, "g"]


@pytest.mark.parametrize(
    ("lines", "kickoffs", "expected"),
    [
        # A row, its kickoff ID, the time of a kickoff that no line reports, and its kickoffs.
        ([], [], ("not_started", "", None, 0)),
        ([line()], [], ("success", "", None, 1)),
        ([line(status="error", **WAITED)], [], ("error", "k", None, 1)),
        ([line(status="error"), line()], [], ("success", "", None, 1)),
        ([line(attempts=2), line(status="error")], [], ("success", "", None, 2)),
        ([line(status="not_started", attempts=0)], [], ("not_started", "", None, 0)),
        ([], [sent("", 1)], ("not_started", "", 5.0, 1)),
        ([], [sent("k1", 1)], ("not_started", "k1", 5.0, 1)),
        ([], [sent("", 1), sent("k1", 1)], ("not_started", "k1", 5.0, 1)),
        ([], [sent("k1", 1), sent("", 1, at=6.0)], ("not_started", "k1", 5.0, 1)),
        ([], [sent("k2", 2), sent("k1", 1, at=6.0)], ("not_started", "k2", 5.0, 2)),
        ([line()], [sent("k1", 1)], ("success", "", None, 1)),
        ([line()], [sent("", 2)], ("success", "", 5.0, 2)),
        ([line(status="error", **WAITED)], [sent("k2", 2)], ("error", "k2", 5.0, 2)),
        ([line(status="uncertain")], [sent("k1", 1)], ("uncertain", "k1", 5.0, 1)),
        ([line(status="uncertain")], [sent("", 1)], ("uncertain", "", None, 1)),
        ([line(status="error")], [sent("k1", 1)], ("error", "", None, 1)),
        # The crew has called with another ID.
        ([line(status="error", **WAITED)], [sent("k1", 1, "call")], ("error", "k1", None, 1)),
        ([line(status="error", **WAITED)], [sent("k1", 1)], ("error", "k", None, 1)),
        ([line(status="error", **WAITED)], [sent("", 1, "call")], ("error", "k", None, 1)),
        ([line(attempts=2, status="error", **WAITED)], [sent("k1", 1, "call")], ("error", "k", None, 2)),
        ([], [sent("k1", 1, "call")], ("not_started", "k1", 5.0, 1)),
    ],
)
def test_newest_kickoff_of_a_row_counts(lines, kickoffs, expected):
    found = Row(0, "a", "digest")

    assert merged([found], lines, kickoffs) == []
    assert (found.status, found.kickoff_id, found.sent_at, found.attempts) == expected
    assert not found.line or found.line["index"] == 0
    if found.sent_at is not None:
        assert found.group == "g"


def test_rows_that_are_no_longer_among_the_inputs_are_returned():
    rows = [Row(0, "a", "digest"), Row(1, "b", "digest")]
    kickoffs = [["c", "digest", "", 5.0, 1, "g"], ["a", "other", "k2", 6.0, 1, "g"]]
    removed = merged(rows, [line("b"), line("d", status="error", **WAITED)], kickoffs)

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


def test_uncertain_kickoff_of_a_row_is_lost_until_another_starts():
    found = Row(0, "a", "digest")
    unknown: Any = {"kickoff_id": None, "started_at": 5.0}
    merged([found], [line(status="not_started", **unknown)], [])

    assert (found.lost_at, found.is_lost) == (5.0, True)
    found.kickoff_id = "k"
    assert not found.is_lost
    merged([found], [line()], [])
    assert found.lost_at is None


def test_late_id_changes_only_a_row_whose_wait_has_failed():
    found = Row(0, "a", "digest", line=line(status="error", error={"stage": "execution"}))
    found.learn_id("k1")

    assert found.line == line(status="error", error={"stage": "execution"})
    Row(0, "a", "digest").learn_id("k1")


def test_error_of_a_row_is_one_limited_line():
    told = failure(errors.ExecutionFailed(f"out of\ncredit {'x' * 5_000}"), "execution")

    assert (told["type"], told["stage"]) == ("ExecutionFailed", "execution")
    assert told["message"].startswith("out of credit")
    assert 1_000 < len(told["message"]) <= 2_001


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        ([(1, 9.0, None, False), (1, 2.0, 3, False)], 3),  # a slow clock
        ([(1, 1.0, 3, False), (1, 1.0, 3, False), (2, 1.0, 4, False)], 7),
        ([(2, 5.0, 7, True), (1, 1.0, 3, False), (2, 5.0, 4, False)], 7),  # parts that were not deleted
        ([(1, 1.0, 3, True), (2, 2.0, 7, True), (2, 2.0, 4, False), (3, 3.0, 1, False)], 8),
        ([(1, 1.0, 3, True), (1, 2.0, 4, True)], 4),
        ([(1, 1.0, 3, False), (1, 2.0, 0, False)], 3),  # a line without usage
        (
            [(3, 3.0, 5, False), (1, 1.0, 3, False), (2, 2.0, 4, False)],
            12,
        ),  # of a run that was created again
    ],
)
def test_token_usage_counts_each_kickoff_once(lines, total):
    spent = Spent()
    counts = [
        spent.with_line(
            line(attempts=attempts, ended_at=at, usage=tokens and {"total_tokens": tokens, "model": "x"}),
            is_final=is_final,
        )
        for attempts, at, tokens, is_final in lines
    ]
    assert counts[-1] == {"total_tokens": total}
