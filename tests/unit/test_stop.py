"""Whether a process cancels: only if a user has marked its task, and not after it was suspended."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Options, Task


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    context: dict[str, Any] = {"ti": SimpleNamespace(start_date=None)}
    return Task(Options(crew_conn_id="crew", cancel_on_kill=True), context, None, is_told_to_end=lambda: True)


@pytest.mark.parametrize(("suspended", "cancels"), [(0.0, True), (55.0, True), (65.0, False)])
def test_suspended_process_cancels_nothing(task, monkeypatch, suspended, cancels):
    stop, now = Stop(task), time.time()
    look = stop.looker()
    monkeypatch.setattr(time, "time", lambda: now + suspended)
    assert look()
    assert stop.cancels() is cancels


def test_slow_response_is_no_suspension(task, monkeypatch):
    stop, now = Stop(task), time.time()

    def poll(_: str) -> str:
        monkeypatch.setattr(time, "time", lambda: now + 110.0)
        return "running"

    assert stop.interruptibly(poll, "id", lambda: None) == "running"
    assert stop.cancels()
