"""What a retry and a cleared task do with a row of a batch. docs/batch.md has the same table."""

from __future__ import annotations

from typing import Any

import pytest

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


@pytest.mark.parametrize("status", ["success", "invalid_output"])
def test_completed_row_runs_again_only_if_cleared_with_rerun_all(status):
    found = row(status, stage="output" if status == "invalid_output" else "")

    assert decision_of(found, cleared=False, chooses_twice=False, rerun="all") is KEPT
    assert decision_of(found, cleared=True, chooses_twice=False, rerun="all") is ANOTHER


@pytest.mark.parametrize("found", [row("", sent_at=1.0), row("uncertain", stage="kickoff")])
def test_uncertain_row_is_retried_if_the_author_prefers_that(found):
    assert decision_of(found, cleared=False, chooses_twice=True, rerun="failed") is CHOSEN
