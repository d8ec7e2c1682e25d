"""Asynchronous status polls, based on aiohttp. A triggerer runs thousands of watches on one event loop."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import nullcontext
from typing import Any

import aiohttp

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.api import (
    CrewApi,
    Request,
    Response,
    most_bytes,
    unknown_at_all_paths,
    unreachable,
)
from airflow_provider_crew.client.models import Execution
from airflow_provider_crew.client.settings import ServiceSettings, detach, is_caused_by

# A connection was not opened, directly or through a proxy, so nothing was sent.
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)
# The limit of the synchronous client. Gateways send headers longer than aiohttp's 8 KB.
_MAX_HEADER_BYTES = 65536
# Parsing a larger response takes up to half a second, so it runs in a thread.
_LARGE = 64 * 1024
# Responses that are kept for the next poll of the same execution, up to this size.
_KEPT, _SMALL = 2_000, 4 * 1024
# With aiohttp's default of 15 seconds, every poll at a typical interval would open a new connection.
_KEEP_ALIVE = 120.0


class CrewPolls:
    """
    Polls of one crew on one event loop. All crews share the loop's session, so there is nothing to close.

    :param settings: Address and token of the crew.
    :param secrets: Secrets to mask in messages besides the token, such as that of the crew's webhooks.
    """

    def __init__(self, settings: ServiceSettings, secrets: Iterable[str] = ()) -> None:
        self.settings = settings
        self._api = CrewApi(settings, secrets)
        self._options: dict[str, Any] = {
            "allow_redirects": False,
            "proxy": self._api.proxy,
            "ssl": self._api.tls or bool(settings.verify),
            "timeout": aiohttp.ClientTimeout(settings.request_timeout, sock_connect=settings.connect_timeout),
        }
        self._places = asyncio.Semaphore(timing.CONCURRENT_POLLS)
        self._last: dict[str, tuple[bytes, Execution]] = {}

    async def status(self, kickoff_id: str, *, deadline: float, largest: int | None = None) -> Execution:
        """
        Return the status of an execution, from whichever of the two paths the crew has.

        Raise TimeoutError if too many other polls are under way until the deadline.

        :param deadline: Time, as a timestamp, from which on there is no waiting beyond the length of one request.
        :param largest: Maximum size of a response in bytes. ``None`` uses the limit of the synchronous client.
        """
        # Waiting for a place is not the crew's outage, so the timeout of the request begins afterwards.
        left = max(deadline - time.time(), 0.0) + self.settings.request_timeout
        async with asyncio.timeout(left) if self._places.locked() else nullcontext():
            await self._places.acquire()
        try:
            failures = []
            for path in self._api.status_paths:
                response = await self._send(self._api.status(kickoff_id, path), largest)
                if not response.is_missing:
                    is_large = len(response.body) > _LARGE
                    if (execution := self._known(response)) is None:
                        read = response.execution
                        execution = await asyncio.to_thread(read) if is_large else read()
                    self._keep(response, execution)
                    self._api.status_paths = (path,)
                    return execution
                failures.append(response.not_found())
        finally:
            self._places.release()
        raise unknown_at_all_paths(failures)

    def _known(self, response: Response) -> Execution | None:
        """Return the execution if the response repeats the one to the poll before, byte for byte, as most do."""
        body, execution = self._last.pop(response.request.kickoff_id, (b"", None))
        return execution if response.is_success and body == response.body else None

    def _keep(self, response: Response, execution: Execution) -> None:
        if len(response.body) <= _SMALL:
            self._last[response.request.kickoff_id] = response.body, execution
            if len(self._last) > _KEPT:  # the first is that of an execution that has ended
                del self._last[next(iter(self._last))]

    async def _send(self, request: Request, largest: int | None) -> Response:
        handled = sys.exception()
        try:
            return await self._exchange(request, largest)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
            detach(error, handled)
            failure = unreachable(request, self._api, error, sent=not is_caused_by(error, *_NOT_CONNECTED))
        raise failure  # outside the except clause: a chained traceback would show the token

    async def _exchange(self, request: Request, largest: int | None) -> Response:
        session = await _session()
        async with session.get(request.url, headers=request.headers, **self._options) as response:
            most = most_bytes(response.status, largest)
            body = bytearray()
            while len(body) <= most and (chunk := await response.content.readany()):
                body += chunk
            return Response.received(request, response.status, response.headers, bytes(body), most)


_Sessions = AsyncGenerator[aiohttp.ClientSession, None]
# Sessions by event loop, each with the generator that closes it.
_sessions: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, _Sessions]] = {}


async def _session() -> aiohttp.ClientSession:
    """Return the session of this event loop. It depends on no crew: TLS, proxy and headers belong to a request."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        for ended in [each for each in _sessions if each.is_closed()]:
            del _sessions[ended]
        keeper = _kept_session()
        _sessions[loop] = await anext(keeper), keeper
    return _sessions[loop][0]


async def _kept_session() -> _Sessions:
    """Yield a session, and close it when the event loop ends: asyncio.run() closes the loop's generators."""
    loop = asyncio.get_running_loop()
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            trust_env=False,  # proxy_for() reads the environment for both clients
        ) as session:
            yield session
    finally:
        _sessions.pop(loop, None)
