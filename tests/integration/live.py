"""A crew for tasks that run in this process, and an Airflow that does not dawdle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.exchange import Exchange
from tests.integration.tasks import CONNECTION, WatchedService

# Every pause of a task that is not an argument of its operator.
NONE = (
    *("longest_back_off", "longest_retry_after", "shortest_deferral", "progress_pause", "progress_turn"),
    *("time_to_clear", "storage_pause"),
)
PAUSES = {"waking_pause": 0.02, "waking_up": 0.3, "people_poll": 0.05, "store_pause": 0.01, "look": 0.02}
PAUSES |= {
    "batch_back_off": 0.1,
    "batch_look": 0.02,
    "batch_save": 0.02,
    "settle_look": 0.05,
    **dict.fromkeys(NONE, 0.0),
}
# The time between polls of a task that has no argument for it.
INTERVALS = {"shortest_interval": 0.02, "longest_interval": 0.02}


@contextmanager
def crew_of_a_task(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[WatchedService]:
    """A crew and its connection, in an Airflow that lets operators be called."""
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    with WatchedService(**options) as running:
        send = Exchange.send

        async def told(exchange: Exchange, answer: Answer) -> None:
            exchange.request.status = answer.status
            running.answers(exchange.request)
            await send(exchange, answer)

        monkeypatch.setattr(Exchange, "send", told)
        monkeypatch.setenv(CONNECTION, running.connection_uri)
        yield running
