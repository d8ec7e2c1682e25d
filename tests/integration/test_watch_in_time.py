"""What ends a wait ends it in time, whatever a server, other watches or a secrets backend do."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.client.errors import LostContact, WaitedTooLong
from airflow_provider_crew.hooks.connection import load_connection
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import read_event
from tests.integration.tasks import CONNECTION, SLOW, TOKEN, fired

pytest_plugins = ["tests.integration.task_fixtures"]

_WATCHES = 300
_REQUEST_TIMEOUT = 1.0
# A queue for a place would take 150 seconds. A busy machine may take half a minute.
_PLACES = 2
_SLACK = 30.0


def connect(monkeypatch: pytest.MonkeyPatch, url: str, **extra: Any) -> None:
    told = {"conn_type": "crew", "host": url, "password": TOKEN, "extra": {"request_timeout": 1.0, **extra}}
    monkeypatch.setenv(CONNECTION, json.dumps(told))


class Mute:
    """A server that accepts connections and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()
        for each in self.connections:
            each.close()


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mute]:
    monkeypatch.setattr("airflow_provider_crew.client.async_client._MOST_AT_ONCE", _PLACES)
    server = Mute()
    connect(monkeypatch, server.url)
    yield server
    server.close()


class LookUps:
    """Look-ups of a connection, which hang from a certain one on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, self.hang_from = 0, 1
        self.over = threading.Event()
        for module in ("polling", "crew"):
            monkeypatch.setattr(f"airflow_provider_crew.hooks.{module}.load_connection", self._look_up)

    def _look_up(self, *connection: Any) -> Any:
        self.number += 1
        if self.number >= self.hang_from:
            self.over.wait(60)
        return load_connection(*connection)


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> Iterator[LookUps]:
    monkeypatch.setattr("airflow_provider_crew.hooks.polling._LOOK_UP", 0.2)
    seen = LookUps(monkeypatch)
    yield seen
    seen.over.set()


def watches(number: int, kickoff_id: str = "4711", **rules: Any) -> list[asyncio.Task[tuple[Any, float]]]:
    rules = {"poll_interval": 0.2, "deadline": time.time() + 3600, **rules}

    async def watch(trigger: CrewExecutionTrigger) -> tuple[Any, float]:
        event = read_event(await fired(trigger))
        return event, time.time()

    return [
        asyncio.create_task(watch(CrewExecutionTrigger(kickoff_id, "crew_default", rules=rules)))
        for _ in range(number)
    ]


async def ends(running: list[asyncio.Task[tuple[Any, float]]], seconds: float) -> list[tuple[Any, float]]:
    """Return how the watches ended, or fail if one of them takes too long."""
    done, late = await asyncio.wait(running, timeout=seconds)
    for each in late:
        each.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    assert len(late) == 0
    return [each.result() for each in done]


async def test_deadline_behind_mute_server_is_noticed_in_time(mute):
    deadline = time.time() + 2

    ended = await ends(watches(_WATCHES, deadline=deadline, max_outage=None), 2 + _REQUEST_TIMEOUT + _SLACK)

    assert {type(end.error) for end, _ in ended} == {WaitedTooLong}
    assert min(at for _, at in ended) >= deadline - 0.1
    assert mute.connections


async def test_outage_behind_mute_server_is_noticed_in_time(mute):
    max_outage = 1.0

    ended = await ends(watches(_WATCHES, max_outage=max_outage), max_outage + 2 * _REQUEST_TIMEOUT + _SLACK)

    assert {type(end.error) for end, _ in ended} == {LostContact}
    assert mute.connections


async def test_poll_that_waits_for_a_place_gets_one(live_crew, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.client.async_client._MOST_AT_ONCE", 1)
    connect(monkeypatch, live_crew.url, request_timeout=0.5)
    live_crew.scenario = SLOW
    kickoff_ids = [live_crew.take({}, None, {}) for _ in range(8)]
    live_crew.faults.hang(seconds=0.3, on="status", times=8)

    running: list[Any] = []
    for kickoff_id in kickoff_ids:
        running += watches(1, kickoff_id, poll_interval=0.1, max_outage=20)
    async with asyncio.timeout(30):
        while len({request.path for request in live_crew.requests.on("status")}) < 8:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize(
    ("rules", "error"),
    [({"deadline": 1.0}, WaitedTooLong), ({"max_outage": 0.5}, LostContact)],
    ids=["deadline", "outage"],
)
async def test_hanging_look_up_of_many_watches_ends_none_late(live_crew, look_ups, rules, error):
    rules = {name: time.time() + value if name == "deadline" else value for name, value in rules.items()}

    ended = await ends(watches(30, **rules), 10)
    again = await ends(watches(30, **rules), 10)

    assert {type(end.error) for end, _ in ended + again} == {error}
    assert look_ups.number == 1
    assert len(live_crew.requests) == 0


async def test_hanging_look_up_that_returns_lets_all_poll(live_crew, look_ups):
    live_crew.scenario = SLOW
    kickoff_id = live_crew.take({}, None, {})
    running = watches(10, kickoff_id, max_outage=60)
    await asyncio.sleep(0.5)

    look_ups.over.set()
    async with asyncio.timeout(30):
        while len(live_crew.requests) < 10:  # noqa: ASYNC110 - the crew has no event to wait for
            await asyncio.sleep(0.05)
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)

    assert look_ups.number == 1


async def test_hanging_look_up_of_a_new_token_ends_in_time(live_crew, look_ups, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.hooks.polling._FRESH_AFTER_REJECTION", 0.0)
    connect(monkeypatch, live_crew.url, request_timeout=0.5)
    live_crew.scenario, look_ups.hang_from = SLOW, 2
    kickoff_id = live_crew.take({}, None, {})
    live_crew.rotate_token("the-next-token-0815")

    ended = await ends(watches(10, kickoff_id, deadline=time.time() + 2), 15)

    assert {type(end.error) for end, _ in ended} == {WaitedTooLong}
    assert look_ups.number == 2
