"""Error of a crew that failed: it begins with the reason."""

from __future__ import annotations

import pytest

from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.client.wording import execution_failed

TRACEBACK = """Traceback (most recent call last):
  File "/app/crew.py", line 7, in kickoff
    raise OutOfCredit("402")
OutOfCredit: 402"""
# Characters of a line that the log page shows on a screen of 1,280 pixels.
SHOWN = 80


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        ("out of credit (402)", "out of credit (402)"),
        ("out of credit\nRequest 7", "out of credit Request 7"),
        ("out of credit " + 1_500 * "x", "out of credit xxx"),
        (TRACEBACK, "OutOfCredit: 402. Traceback"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
    ],
    ids=["a line", "two lines", "a long line", "a traceback", "no more than its heading"],
)
def test_error_begins_with_the_reason(reason: str, first: str) -> None:
    failed = Failed(status="error", kickoff_id="7", error=reason, execution_time=6.0)
    error = execution_failed(failed, "task 2 of 2, writing_task (Writer)")

    event, *others = str(error).splitlines()
    assert event.startswith(first)
    assert len(first) < SHOWN
    assert others[:2] == [
        "At: task 2 of 2, writing_task (Writer), after 6s, execution 7",
        f"Cost: {error.cost.sentence}",
    ]
    assert error.error == reason
