"""What comes after the crew, the same whichever way was waited for it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task


@task
def use(result: Any) -> int:
    """Take the result."""
    return len(result)
