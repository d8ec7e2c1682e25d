"""Whether a process cancels: only if a user has marked its task, and not after it was suspended."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.task.stop import Pulse, Stop
from airflow_provider_crew.task.task import Options, Task


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    context: dict[str, Any] = {"ti": SimpleNamespace(start_date=None)}
    return Task(Options(crew_conn_id="crew", cancel_on_kill=True), context, None, is_told_to_end=lambda: True)


def pulse(*beats: float) -> Pulse:
    """Return a pulse at these times, and at the last one from then on."""
    return Pulse(chain(beats, repeat(beats[-1])).__next__)


@pytest.mark.parametrize(
    ("beats", "cancels"),
    [([0.0, 5.0, 10.0], True), ([0.0, 55.0], True), ([0.0, 65.0], False), ([0.0, 65.0, 70.0], False)],
)
def test_suspended_process_cancels_nothing(task, beats, cancels):
    own = pulse(*beats)
    for _ in beats[2:]:
        own.was_suspended()

    assert Stop(task, own).cancels() is cancels


def test_process_has_one_pulse(task):
    assert Stop(task)._pulse is Stop(task)._pulse
    assert Stop(task).cancels()
