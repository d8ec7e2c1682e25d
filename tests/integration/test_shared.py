"""What watches of one crew share on an event loop, and that none of them delays or ends another."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client.errors import LostContact, WaitedTooLong
from airflow_provider_crew.hooks.connection import load_connection_async
from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.triggers.events import read_event
from tests.airflow_runs import PATIENCE
from tests.integration.tasks import CONNECTION, QUICK, SLOW, TOKEN, WatchedService, fired, trigger_of

pytest_plugins = ["tests.integration.task_fixtures"]

Watches = list[asyncio.Task[dict[str, Any]]]


class LookUps:
    """Look-ups of a connection: their number, how long each takes, and from which on they hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, self.seconds, self.hang_from = 0, 0.0, math.inf
        self.over = threading.Event()
        monkeypatch.setattr("airflow_provider_crew.hooks.polling.load_connection_async", self._look_up)

    async def _look_up(self, *connection: Any) -> Any:
        self.number += 1
        await asyncio.sleep(self.seconds)
        while self.number >= self.hang_from and not self.over.is_set():  # noqa: ASYNC110 - of any event loop
            await asyncio.sleep(0.02)
        return await load_connection_async(*connection)


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> Iterator[LookUps]:
    seen = LookUps(monkeypatch)
    yield seen
    seen.over.set()


def kicked_off(service: Any, times: int, scenario: Any = SLOW) -> list[str]:
    return [service.new_execution(scenario) for _ in range(times)]


def watch(*kickoff_ids: str, **rules: Any) -> Watches:
    return [
        asyncio.create_task(fired(trigger_of(each, **{"poll_interval": 0.05} | rules))) for each in kickoff_ids
    ]


async def errors_of(watches: Watches, seconds: float = PATIENCE) -> set[type]:
    """Return the errors that the watches end with, or fail if one of them takes too long."""
    async with asyncio.timeout(seconds):
        return {type(read_event(event).error) for event in await asyncio.gather(*watches)}


async def seen(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not there():  # noqa: ASYNC110 - what is waited for is seen by a server in another thread
            await asyncio.sleep(0.02)


async def stopped(watches: Watches) -> None:
    for each in watches:
        each.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


def polled(service: LocalCrewService, kickoff_ids: list[str], times: int = 1) -> Callable[[], bool]:
    def there() -> bool:
        paths = [request.path for request in service.requests.on("status")]
        return all(paths.count(f"/status/{kickoff_id}") >= times for kickoff_id in kickoff_ids)

    return there


async def test_watches_share_lookup_and_connections(live_crew, look_ups):
    look_ups.seconds = 0.1
    kickoff_ids = kicked_off(live_crew, 150)

    watches = watch(*kickoff_ids, poll_interval=0.5)
    await seen(polled(live_crew, kickoff_ids, times=3))
    await stopped(watches)

    assert look_ups.number == 1
    assert len({request.client for request in live_crew.requests}) <= 100


async def test_rotated_token_is_picked_up_with_one_lookup(live_crew, look_ups, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(
        "airflow_provider_crew.hooks.polling.time",
        SimpleNamespace(**vars(time) | {"monotonic": lambda: clock.now}),
    )
    kickoff_ids = kicked_off(live_crew, 30)
    watches = watch(*kickoff_ids)
    await seen(polled(live_crew, kickoff_ids))
    clock.now += 5  # what was read longer ago is not taken for an answer to a rejection

    live_crew.rotate_token("the-next-token-0815")
    monkeypatch.setenv(CONNECTION, live_crew.connection_uri)
    rotated_at = len(live_crew.requests)
    await seen(lambda: accepted(live_crew, since=rotated_at) == {f"/status/{each}" for each in kickoff_ids})
    await stopped(watches)

    assert look_ups.number == 2


def accepted(service: LocalCrewService, since: int) -> set[str]:
    return {request.path for request in list(service.requests)[since:] if request.status == 200}


async def test_changed_host_does_not_move_running_watches(live_crew, monkeypatch, timing):
    timing(connection_age=0.0)
    (here,) = kicked_off(live_crew, 1)
    watches = watch(here)
    await seen(polled(live_crew, [here]))
    with WatchedService(token=None) as elsewhere:
        (there,) = kicked_off(elsewhere, 1)
        monkeypatch.setenv(CONNECTION, elsewhere.connection_uri)

        watches += watch(there)
        await seen(polled(elsewhere, [there], times=3))
        await seen(polled(live_crew, [here], times=len(live_crew.requests) + 3))
        await stopped(watches)

        assert {request.path for request in elsewhere.requests} == {f"/status/{there}"}
    assert {request.path for request in live_crew.requests} == {f"/status/{here}"}


async def test_server_that_never_answers_ends_no_watch_late(monkeypatch, timing):
    """A queue for a place would take 50 seconds."""
    timing(concurrent_polls=2)
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as mute:
        monkeypatch.setenv(CONNECTION, f"crew://:{TOKEN}@127.0.0.1:{mute.getsockname()[1]}/http?request_timeout=1")
        watches = watch(*["4711"] * 100, deadline=time.time() + 2, max_outage=None)

        assert await errors_of(watches, 120) == {WaitedTooLong}


async def test_waiting_for_a_place_is_no_outage(live_crew, monkeypatch, timing):
    timing(concurrent_polls=1)
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?request_timeout=2")
    kickoff_ids = kicked_off(live_crew, 12, QUICK)
    live_crew.faults.hang(seconds=0.1, on="status", times=12)

    assert await errors_of(watch(*kickoff_ids, max_outage=0.05)) == {type(None)}


@pytest.mark.parametrize(
    ("hangs", "lasts", "max_outage", "error"),
    [(1, 0.5, None, WaitedTooLong), (1, 3600, 0.3, LostContact), (2, 0.5, None, WaitedTooLong)],
    ids=["deadline", "outage", "deadline, with a new token"],
)
async def test_hanging_lookup_ends_no_watch_late(live_crew, look_ups, timing, hangs, lasts, max_outage, error):
    timing(connection_lookup=0.2, connection_age_if_rejected=0.0)
    look_ups.hang_from = hangs
    live_crew.rotate_token("the-next-token-0815")

    for _ in range(2):
        watches = watch(*["4711"] * 30, deadline=time.time() + lasts, max_outage=max_outage)
        assert await errors_of(watches) == {error}

    assert look_ups.number == hangs
    assert bool(live_crew.requests) is (hangs > 1)
