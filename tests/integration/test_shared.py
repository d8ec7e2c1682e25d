"""What watches of one crew share on an event loop, and what becomes of it when they come, go and are cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from airflow_provider_crew.hooks.connection import load_connection
from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import read_event
from tests.integration.tasks import CONNECTION, QUICK, SLOW, fired

pytest_plugins = ["tests.integration.task_fixtures"]


@dataclass
class LookUps:
    """What is asked of Airflow about connections, and how it answers."""

    seconds: float = 0.0
    fails: bool = False
    number: int = 0


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> LookUps:
    seen, ask = LookUps(), load_connection

    def counted(*connection: Any) -> Any:
        seen.number += 1
        time.sleep(seen.seconds)
        if seen.fails:
            raise OSError("Airflow's API server does not answer")
        return ask(*connection)

    monkeypatch.setattr("airflow_provider_crew.hooks.polling.load_connection", counted)
    return seen


def kicked_off(service: Any, times: int, scenario: Any = SLOW) -> list[str]:
    service.scenario = scenario
    return [service.take({}, None, {}) for _ in range(times)]


def watch(*kickoff_ids: str, **options: Any) -> list[asyncio.Task[dict[str, Any]]]:
    rules = {"poll_interval": 0.05, "deadline": time.time() + 60} | options
    triggers = [CrewExecutionTrigger(kickoff_id, "crew_default", rules=rules) for kickoff_id in kickoff_ids]
    return [asyncio.create_task(fired(trigger)) for trigger in triggers]


async def seen(there: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not there():  # noqa: ASYNC110 - what is waited for is seen by a server in another thread
            await asyncio.sleep(0.02)


async def stopped(watches: list[asyncio.Task[dict[str, Any]]]) -> None:
    for each in watches:
        each.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


def looked(service: LocalCrewService, kickoff_ids: list[str], times: int = 1) -> Callable[[], bool]:
    def there() -> bool:
        paths = [request.path for request in service.requests.on("status")]
        return all(paths.count(f"/status/{kickoff_id}") >= times for kickoff_id in kickoff_ids)

    return there


def open_connections(service: LocalCrewService) -> int:
    mine = psutil.Process().net_connections("tcp")
    return sum(each.status == "ESTABLISHED" and each.raddr.port == service.port for each in mine if each.raddr)


async def test_watches_share_lookup_and_connections(live_crew, look_ups):
    look_ups.seconds = 0.1
    kickoff_ids = kicked_off(live_crew, 150)

    watches = watch(*kickoff_ids, poll_interval=0.5)
    await seen(looked(live_crew, kickoff_ids, times=3))
    await stopped(watches)

    assert look_ups.number == 1
    assert len({request.client for request in live_crew.requests}) <= 100


async def test_connections_are_closed_with_last_watch(live_crew):
    first, second = kicked_off(live_crew, 2)
    one, other = watch(first, second)
    await seen(looked(live_crew, [first, second], times=2))

    await stopped([one])
    await seen(lambda: open_connections(live_crew) > 0)
    await stopped([other])

    await seen(lambda: open_connections(live_crew) == 0)


async def test_rotated_token_is_picked_up_with_one_lookup(live_crew, look_ups, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(
        "airflow_provider_crew.hooks.polling.time",
        SimpleNamespace(**vars(time) | {"monotonic": lambda: clock.now}),
    )
    kickoff_ids = kicked_off(live_crew, 30)
    watches = watch(*kickoff_ids)
    await seen(looked(live_crew, kickoff_ids))
    clock.now += 5  # what was read longer ago is not taken for an answer to a rejection

    live_crew.rotate_token("the-next-token-0815")
    monkeypatch.setenv(CONNECTION, live_crew.connection_uri)
    rotated_at = len(live_crew.requests)
    await seen(lambda: accepted(live_crew, since=rotated_at) == {f"/status/{each}" for each in kickoff_ids})
    await stopped(watches)

    assert look_ups.number == 2


def accepted(service: LocalCrewService, since: int) -> set[str]:
    return {request.path for request in list(service.requests)[since:] if request.status == 200}


async def test_watch_that_looks_up_for_all_may_be_cancelled(live_crew, look_ups):
    look_ups.seconds = 0.3
    kickoff_ids = kicked_off(live_crew, 10, QUICK)
    watches = watch(*kickoff_ids, poll_interval=0.02)
    await seen(lambda: look_ups.number == 1)
    await asyncio.sleep(0.1)

    await stopped(watches[:5])
    ends = [read_event(await each) for each in watches[5:]]

    assert all(end.result for end in ends)
    assert look_ups.number <= 2


async def test_changed_host_does_not_move_running_watches(live_crew, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.hooks.polling._FRESH", 0.0)
    (here,) = kicked_off(live_crew, 1)
    watches = watch(here)
    await seen(looked(live_crew, [here]))
    with LocalCrewService(SLOW) as elsewhere:
        (there,) = kicked_off(elsewhere, 1)
        monkeypatch.setenv(CONNECTION, elsewhere.connection_uri)

        watches += watch(there)
        await seen(looked(elsewhere, [there], times=3))
        await seen(looked(live_crew, [here], times=len(live_crew.requests) + 3))
        await stopped(watches)

        assert {request.path for request in elsewhere.requests} == {f"/status/{there}"}
    assert {request.path for request in live_crew.requests} == {f"/status/{here}"}


def test_other_event_loop_shares_nothing(live_crew, look_ups):
    for _ in range(2):
        (kickoff_id,) = kicked_off(live_crew, 1, QUICK)

        async def run(kickoff_id: str = kickoff_id) -> dict[str, Any]:
            return await watch(kickoff_id)[0]

        assert read_event(asyncio.run(run())).result

    assert look_ups.number == 2


IMPORTS_OF_A_FIRST_TRIGGER = """
import asyncio, json, sys, threading, time
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

threads = {}

class Watcher:
    @staticmethod
    def find_spec(name, path=None, target=None):
        threads[name] = threading.current_thread().name

async def run():
    trigger = CrewExecutionTrigger(
        sys.argv[1], "crew_default", rules={"poll_interval": 0.05, "deadline": time.time() + 60}
    )
    return [event async for event in trigger.run()]

sys.meta_path.insert(0, Watcher)
asyncio.run(run())
print(json.dumps(threads))
"""


def test_first_trigger_imports_in_a_thread(live_crew):
    (kickoff_id,) = kicked_off(live_crew, 1, QUICK)

    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_OF_A_FIRST_TRIGGER, kickoff_id],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {CONNECTION: live_crew.connection_uri},
    )
    assert done.returncode == 0, done.stderr
    threads = json.loads(done.stdout.splitlines()[-1])

    ours = {"airflow_provider_crew", "aiohttp", "pydantic", "tenacity"}
    assert "aiohttp" in threads
    assert not [
        name for name, thread in threads.items() if thread == "MainThread" and name.partition(".")[0] in ours
    ]
