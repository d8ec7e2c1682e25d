"""What comes after the crew: the same for every way to wait for it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task


@task
def use(result: Any) -> int:
    """Take the result."""
    return len(result)
