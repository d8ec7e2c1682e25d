"""A crew for tasks that run in this process, and an Airflow that does not dawdle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.exchange import Exchange
from tests.integration.tasks import CONNECTION, WatchedService
from tests.supported import AIRFLOW


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten every pause of a task that is not an argument of its operator."""
    package = "airflow_provider_crew"
    monkeypatch.setattr(f"{package}.client.api._wait", lambda *_: 0.0)
    monkeypatch.setattr(f"{package}.client.api._WAKING_PAUSE", 0.05)
    monkeypatch.setattr(f"{package}.task.checks.WAKING_UP", 0.3)
    monkeypatch.setattr(f"{package}.client.watch._WHILE_PEOPLE_DECIDE", 0.05)
    for module in ("triggers.crew", "task.sensor"):
        monkeypatch.setattr(f"{package}.{module}.MIN_DEFERRAL_SECONDS", 0.0)
    monkeypatch.setattr(f"{package}.task.sensor.LONGEST_INTERVAL", 0.01)
    monkeypatch.setattr(f"{package}.task.progress.PAUSE", 0.0)
    for pause in ("PAUSE", "_PAUSE_FOR_ALL"):
        monkeypatch.setattr(f"{package}.triggers.progress.{pause}", 0.0)
    monkeypatch.setattr(f"{package}.task.record._TIME_TO_CLEAR", 0.0)
    monkeypatch.setattr(f"{package}.task.record._PAUSE", 0.01)
    if AIRFLOW >= (3, 3):
        monkeypatch.setattr(f"{package}.batch.start._JITTER", 0.0)
        monkeypatch.setattr(f"{package}.batch.start._BACK_OFF", 0.1)
        monkeypatch.setattr(f"{package}.batch.watching._LOOK", 0.02)
        # Not time.sleep itself: without it, what waits in other threads would take their turns.
        monkeypatch.setattr(f"{package}.batch.files.time", SimpleNamespace(sleep=lambda _: None))


def shorten_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time between polls of a task that has no argument for it."""
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(f"airflow_provider_crew.client.options.{name}_INTERVAL", 0.02)


@contextmanager
def crew_of_a_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedService]:
    """A crew and its connection, in an Airflow that lets operators be called."""
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    with WatchedService() as running:
        send = Exchange.send

        async def told(exchange: Exchange, answer: Answer) -> None:
            exchange.request.status = answer.status
            running.answers(exchange.request)
            await send(exchange, answer)

        monkeypatch.setattr(Exchange, "send", told)
        monkeypatch.setenv(CONNECTION, running.connection_uri)
        yield running
