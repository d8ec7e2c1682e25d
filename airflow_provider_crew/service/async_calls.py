"""The calls of the asynchronous client, over aiohttp: apart from it, because that takes long to import."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.network import connect_timeout, proxy_for, tls_context
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.wire import MAX_ANSWER_BYTES, CrewCalls, Outcome, Request, too_large

T = TypeVar("T")

_TRANSPORT_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
# As much as the synchronous client takes; gateways send headers longer than aiohttp's 8 KB.
_MAX_HEADER_BYTES = 65536
# Polls under way, and so connections that are kept; aiohttp has as many at the most.
_MOST_AT_ONCE = 100
# A larger answer is read in a thread, for up to half a second at 2 MB.
_LARGE = 64 * 1024
# aiohttp's own 15 seconds would mean a new connection for every poll at a usual interval.
_KEEP_ALIVE = 120.0


class AsyncCalls(CrewCalls):
    """
    Sends from one event loop.

    aiohttp by itself sends a read once more when its connection breaks off.
    """

    def __init__(self, settings: ServiceSettings, largest: int | None) -> None:
        super().__init__(settings)
        self._largest = largest
        self._tls = tls_context(settings) or False
        self._proxy = proxy_for(settings)
        self._session = self._new_session(keepalive_timeout=_KEEP_ALIVE)
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._session.close()

    def _new_session(self, *told: aiohttp.TraceConfig, **keeping: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, **keeping),
            trace_configs=list(told),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=self.settings.request_timeout, sock_connect=connect_timeout(self.settings)
            ),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            trust_env=False,  # what the environment says is read in one place for both clients
        )

    async def _parsed(self, answer: Answer, read: Callable[[], T]) -> T:
        return await asyncio.to_thread(read) if len(answer.body) > _LARGE else read()

    async def _exchange(self, request: Request) -> Outcome:
        if request.starts_work:
            return await self._exchange_once(request)
        try:
            # Outside the time limit: waiting here says nothing about the service.
            async with self._places:
                return await self._send(self._session, request)
        except _TRANSPORT_FAILURES as error:
            return self._unreachable(request, error, sent=not isinstance(error, _NOT_CONNECTED))

    async def _exchange_once(self, request: Request) -> Outcome:
        sent = False

        async def connected(*_: object) -> None:
            nonlocal sent
            sent = True

        telling = aiohttp.TraceConfig()
        telling.on_connection_create_end.append(connected)
        try:
            async with self._new_session(telling, force_close=True) as session:
                return await self._send(session, request)
        except _TRANSPORT_FAILURES as error:
            return self._unreachable(request, error, sent=sent)

    async def _send(self, session: aiohttp.ClientSession, request: Request) -> Outcome:
        async with session.request(
            request.method,
            # Encoded: yarl would undo escapes that an odd kickoff id needs.
            URL(request.url, encoded=True),
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
            proxy=self._proxy,
        ) as response:
            # What stands in the way of the crew may say so at any length.
            limit = (self._largest if response.ok else None) or MAX_ANSWER_BYTES
            body = bytearray()
            while chunk := await response.content.readany():
                body += chunk
                if len(body) > limit:
                    return too_large(request, response.status, limit)
            return Answer(response.status, response.headers, bytes(body), request.secrets)
