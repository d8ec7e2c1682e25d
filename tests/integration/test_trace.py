"""Size of what a reader has to follow: functions of this package that a kickoff calls."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_crew
from tests.integration.operators import kickoff
from tests.integration.tasks import Task, TaskStateStore

pytest_plugins = ["tests.integration.task_fixtures"]

PACKAGE = Path(airflow_provider_crew.__file__).parent


@pytest.mark.usefixtures("live_crew")
def test_kickoff_is_short_to_follow():
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        is_own = path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "local")
        if event == "call" and is_own and not frame.f_code.co_name.startswith("<"):
            calls[f"{path.relative_to(PACKAGE)}:{frame.f_code.co_qualname}"] += 1

    Task(kickoff, store=TaskStateStore()).run()  # imports and caches
    task = Task(kickoff, store=TaskStateStore())
    operator = task.begin()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        operator.execute(task.context)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

    assert "task/attempt.py:Attempt.kick_off" in calls
    assert len(calls) <= 151
    assert sum(calls.values()) <= 292
