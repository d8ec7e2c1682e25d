"""Asynchronous client, based on aiohttp, with the methods and results of the synchronous one."""

import asyncio
import sys
from contextlib import nullcontext
from typing import Any, Self, TypeVar, cast

import aiohttp
from pydantic import SecretStr
from yarl import URL

from airflow_provider_crew.client.api import Answer, CrewApi, Flow, KickoffRequest, Outcome, Request
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution, Failed
from airflow_provider_crew.client.settings import ServiceSettings, detach, is_caused_by, proxy_for, tls_context

T = TypeVar("T")


class NotConnected(Exception):
    """A connection could not be opened, directly or through a proxy, so nothing was sent."""


_TRANSPORT_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError, NotConnected)
# The limit of the synchronous client. Gateways send headers longer than aiohttp's 8 KB.
_MAX_HEADER_BYTES = 65536
# Maximum number of concurrent polls, and so of kept connections.
_MOST_AT_ONCE = 100
# Parsing a larger answer takes up to half a second, so it runs in a thread.
_LARGE = 64 * 1024
# With aiohttp's default of 15 seconds, every poll at a typical interval would open a new connection.
_KEEP_ALIVE = 120.0
# Seconds to wait for a kickoff's answer after its caller was cancelled. The answer may have arrived already.
_LATE_ANSWER = 1.0


class AsyncCrewClient:
    """
    Client for one crew and one event loop. Use it as an asynchronous context manager, or close it.

    :param settings: The crew's address and token.
    :param largest: Maximum size of an answer in bytes. ``None`` uses the limit of the synchronous client.
    """

    users = 0
    """Number of watches that share this client."""

    def __init__(self, settings: ServiceSettings, *, largest: int | None = None) -> None:
        self.settings = settings
        self.largest = largest
        self._api = CrewApi(settings, largest)
        self._tls = tls_context(settings) or False
        self._proxy = SecretStr(proxy_for(settings) or "")
        self._session = self._new_session(_Connector(ssl=self._tls, limit=0, keepalive_timeout=_KEEP_ALIVE))
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def inputs(self) -> CrewInputs:
        """Return the inputs that the crew takes."""
        return await self._run(self._api.inputs(), self._session)

    async def kickoff(self, request: KickoffRequest) -> str:
        """
        Send a kickoff once and return its kickoff ID. Raise UncertainKickoff if an execution may have started.

        If the caller is cancelled after the kickoff was sent, wait briefly for the answer, so that its ID is
        logged.
        """
        # Use a new connection: a kept one that the peer has closed looks like a lost answer.
        connector = _Connector(ssl=self._tls, force_close=True)

        async def send() -> str:
            async with self._new_session(connector) as session:
                return await self._run(self._api.kickoff(request), session)

        sending = asyncio.create_task(send())
        try:
            return await asyncio.shield(sending)
        finally:
            if connector.has_connected and not sending.done():
                await asyncio.wait({sending}, timeout=_LATE_ANSWER)
            sending.cancel()

    async def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution."""
        return await self._run(self._api.status(kickoff_id), self._session)

    async def cancel(self, kickoff_id: str) -> Completed | Failed:
        """Stop an execution and return its end. Raise NotCancelled unless its status confirms one."""
        return await self._run(self._api.cancel(kickoff_id), self._session)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the client."""
        await self.close()

    def _new_session(self, connector: "_Connector") -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Includes a proxy's CONNECT and the TLS handshake.
            timeout=aiohttp.ClientTimeout(connect=self.settings.connect_timeout),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            trust_env=False,  # proxy_for() reads the environment for both clients
        )

    async def _run(self, flow: Flow[T], session: aiohttp.ClientSession) -> T:
        try:
            request, value = _advance(flow, None)
            while request:
                outcome = await self._exchange(request, session)
                if isinstance(outcome, Answer) and len(outcome.body) > _LARGE:
                    request, value = await asyncio.to_thread(_advance, flow, outcome)
                else:
                    request, value = _advance(flow, outcome)
        finally:
            flow.close()
        return cast("T", value)

    async def _exchange(self, request: Request, session: aiohttp.ClientSession) -> Outcome:
        """Send the request once. Any failure counts as sent, unless it proves that no connection was open."""
        place = nullcontext() if request.starts_work else self._places
        # Keep the URL encoded: yarl would undo escapes that an unusual kickoff ID needs.
        url, proxy = URL(request.url, encoded=True), self._proxy.get_secret_value() or None
        options: Any = {"data": request.body, "headers": request.headers, "allow_redirects": False, "proxy": proxy}
        handled = sys.exception()
        try:
            # One timeout for all: a watch must notice its deadline while other polls wait for a slow crew.
            async with (
                asyncio.timeout(self.settings.request_timeout),
                place,
                session.request(request.method, url, **options) as response,
            ):
                most = self._api.max_bytes(response.status)
                body = bytearray()
                while len(body) <= most and (chunk := await response.content.readany()):
                    body += chunk
                return self._api.received(request, response.status, response.headers, bytes(body))
        except _TRANSPORT_FAILURES as error:
            detach(error, handled)
            # A kickoff has a connector of its own.
            has_connected = getattr(session.connector, "has_connected", True)
            return self._api.unreachable(
                request, error, sent=has_connected and not is_caused_by(error, NotConnected)
            )


def _advance(flow: Flow[T], outcome: Any) -> tuple[Request | None, T | None]:
    """Return the next request of a flow, or None and its return value. A StopIteration cannot leave a thread."""
    try:
        return flow.send(outcome), None
    except StopIteration as end:
        return None, end.value


class _Connector(aiohttp.TCPConnector):
    """Connector that distinguishes a failure to connect, directly or through a proxy, from later failures."""

    has_connected = False

    async def connect(self, *args: Any, **options: Any) -> Any:
        """Return an open connection."""
        try:
            connection = await super().connect(*args, **options)
        except _TRANSPORT_FAILURES as error:
            raise NotConnected from error
        self.has_connected = True
        return connection
