"""What a retry and a cleared task do with a row of a batch, as in docs/batch.md, and why rows failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_crew.batch.reasons import count_reason, most_common
from airflow_provider_crew.batch.rows import Row, decision_of
from airflow_provider_crew.task.decide import Decision

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
