"""
The contestants: ways to wait for one execution, each as its documentation, or a competent person, would do it.

Each imports its provider by itself, so that a process holds only the one that it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.stub import HOST, Stub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from airflow.triggers.base import BaseTrigger

TOKEN = "a-token-of-the-usual-length-0123456789"  # noqa: S105 - the stub takes any

_HEADERS = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
_A_DAY = 24 * 60 * 60.0


class Watch(Protocol):
    """Waits for an execution, known by its number; returns only if it ends, which it should not."""

    async def __call__(self, number: int, interval: float) -> object:
        """Poll at the interval."""


def connections(stub: Stub) -> dict[str, str]:
    """Return the environment in which every contestant finds the stub, and trusts it."""
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    apart = {"host": HOST, "port": stub.port, "schema": stub.scheme}
    given: dict[str, dict[str, Any]] = {
        "crew_default": {"conn_type": "crew", "host": stub.address, "password": TOKEN},
        "http_default": {"conn_type": "http", "host": stub.address, "extra": bearer},
        "dbt_cloud_default": {"conn_type": "dbt_cloud", "host": f"{HOST}:{stub.port}", "password": TOKEN},
        "databricks_default": {"conn_type": "databricks", "password": TOKEN, **apart},
    }
    found = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection) for name, connection in given.items()}
    # aiohttp asks OpenSSL for its authorities; requests, and with it this provider, has a variable of its own.
    trusted = {"SSL_CERT_FILE": stub.authority, "REQUESTS_CA_BUNDLE": stub.authority} if stub.authority else {}
    return found | trusted


def _kickoff_id(number: int) -> str:
    return str(uuid.UUID(int=number, version=4))


async def _first_event(trigger: BaseTrigger) -> object:
    async for event in trigger.run():
        return event
    return None


@asynccontextmanager
async def _ours(_: Stub) -> AsyncIterator[Watch]:
    from airflow_provider_crew.client.watch import WatchRules
    from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

    async def watch(number: int, interval: float) -> object:
        # As plain data, which is all that a triggerer has of them.
        rules = asdict(WatchRules(deadline=time.time() + _A_DAY, poll_interval=interval))
        trigger = CrewExecutionTrigger(_kickoff_id(number), "crew_default", rules=rules)
        return await _first_event(trigger)

    yield watch


@asynccontextmanager
async def _http(_: Stub) -> AsyncIterator[Watch]:
    from airflow.providers.http.triggers.http import HttpEventTrigger

    async def watch(number: int, interval: float) -> object:
        trigger = HttpEventTrigger(
            response_check_path="benchmarks.response_check.is_over",
            endpoint=f"status/{_kickoff_id(number)}",
            poll_interval=interval,
        )
        return await _first_event(trigger)

    yield watch


@asynccontextmanager
async def _dbt_cloud(stub: Stub) -> AsyncIterator[Watch]:
    from airflow.providers.dbt.cloud.hooks.dbt import DbtCloudHook
    from airflow.providers.dbt.cloud.triggers.dbt import DbtCloudRunJobTrigger

    if stub.scheme == "http":
        _let_dbt_cloud_speak_plain_http(DbtCloudHook)

    async def watch(number: int, interval: float) -> object:
        trigger = DbtCloudRunJobTrigger(
            "dbt_cloud_default", number, time.time() + _A_DAY, poll_interval=interval, account_id=1
        )
        return await _first_event(trigger)

    yield watch


def _let_dbt_cloud_speak_plain_http(hook: Any) -> None:
    """Rewrite its addresses: the hook has no setting for http, which is to be compared, too."""
    secure = hook.get_request_url_params

    def plain(*arguments: Any, **options: Any) -> tuple[str, dict[str, Any]]:
        url, params = secure(*arguments, **options)
        return url.replace("https://", "http://", 1), params

    hook.get_request_url_params = staticmethod(plain)


@asynccontextmanager
async def _databricks(_: Stub) -> AsyncIterator[Watch]:
    from airflow.providers.databricks.triggers.databricks import DatabricksExecutionTrigger

    async def watch(number: int, interval: float) -> object:
        # Declared as whole seconds, but only used to sleep.
        trigger = DatabricksExecutionTrigger(
            number,
            "databricks_default",
            polling_period_seconds=interval,  # type: ignore[arg-type, unused-ignore]
        )
        return await _first_event(trigger)

    yield watch


@asynccontextmanager
async def _aiohttp(stub: Stub, spread: float = 0.0) -> AsyncIterator[Watch]:
    import random

    import aiohttp

    async with aiohttp.ClientSession(stub.address, headers=_HEADERS) as session:

        async def watch(number: int, interval: float) -> object:
            path = f"/status/{_kickoff_id(number)}"
            while True:
                async with session.get(path) as response:
                    response.raise_for_status()
                    execution = await response.json()
                if execution["status"] != "running":
                    return execution
                chance = 2 * random.random() - 1 if spread else 0  # noqa: S311 - it spreads polls
                await asyncio.sleep(interval * (1 + spread * chance))

        yield watch


@asynccontextmanager
async def _httpx(stub: Stub) -> AsyncIterator[Watch]:
    import httpx

    every = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx.AsyncClient(base_url=stub.address, headers=_HEADERS, limits=every) as client:

        async def watch(number: int, interval: float) -> object:
            path = f"/status/{_kickoff_id(number)}"
            while True:
                response = await client.get(path)
                response.raise_for_status()
                execution = response.json()
                if execution["status"] != "running":
                    return execution
                await asyncio.sleep(interval)

        yield watch


@asynccontextmanager
async def _by_hand(stub: Stub) -> AsyncIterator[Watch]:
    pool = _Pool(stub)

    async def watch(number: int, interval: float) -> object:
        while True:
            execution = await pool.get(f"/status/{_kickoff_id(number)}")
            if execution["status"] != "running":
                return execution
            await asyncio.sleep(interval)

    yield watch
    pool.close()


class _Pool:
    """Kept connections with the least HTTP that works: how cheap asyncio alone could be."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        headers = "".join(f"{name}: {value}\r\n" for name, value in _HEADERS.items())
        self._rest = f" HTTP/1.1\r\nHost: {HOST}:{stub.port}\r\n{headers}\r\n"

    async def get(self, path: str) -> dict[str, Any]:
        reader, writer = self._idle.pop() if self._idle else await self._connected()
        writer.write(f"GET {path}{self._rest}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        self._idle.append((reader, writer))
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head.decode())
        execution: dict[str, Any] = json.loads(body)
        return execution

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self._stub.port, ssl=self._stub.scheme == "https")

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


# Those that are compared most closely are measured right after one another.
CONTESTANTS: dict[str, Callable[[Stub], AbstractAsyncContextManager[Watch]]] = {
    "ours": _ours,
    "aiohttp": _aiohttp,
    "aiohttp_spread": partial(_aiohttp, spread=0.1),
    "httpx": _httpx,
    "by_hand": _by_hand,
    "http": _http,
    "dbt_cloud": _dbt_cloud,
    "databricks": _databricks,
}
NAMES = {
    "ours": "CrewExecutionTrigger",
    "aiohttp": "bare aiohttp loop",
    "aiohttp_spread": "the same with jitter of 10 %",
    "httpx": "bare httpx loop",
    "by_hand": "hand-written asyncio loop",
    "http": "HttpEventTrigger",
    "dbt_cloud": "DbtCloudRunJobTrigger",
    "databricks": "DatabricksExecutionTrigger",
}
