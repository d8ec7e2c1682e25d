"""The asynchronous client, on aiohttp: the same methods and results as the synchronous one."""

import asyncio
from typing import Any, Self, TypeVar, cast

import aiohttp
from pydantic import SecretStr
from yarl import URL

from airflow_provider_crew.client.api import (
    Answer,
    CrewApi,
    Done,
    Flow,
    KickoffRequest,
    Outcome,
    Request,
    advance,
    most_bytes,
    received,
)
from airflow_provider_crew.client.models import CrewInputs, Execution
from airflow_provider_crew.client.settings import ServiceSettings, connect_timeout, proxy_for, tls_context

T = TypeVar("T")

_TRANSPORT_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
# As much as the synchronous client takes; gateways send headers longer than aiohttp's 8 KB.
_MAX_HEADER_BYTES = 65536
# Polls at a time, and so connections that are kept.
_MOST_AT_ONCE = 100
# Reading a larger answer takes up to half a second, so it is read in a thread.
_LARGE = 64 * 1024
# aiohttp's own 15 seconds would mean a new connection for every poll at a usual interval.
_KEEP_ALIVE = 120.0
# Seconds for an answer to a kickoff whose caller was cancelled: it may have arrived already.
_LATE_ANSWER = 1.0


class AsyncCrewClient:
    """
    Talk to one crew from one event loop. Use it as an asynchronous context manager, or close it.

    :param settings: The crew's address and token.
    :param largest: Bytes to read of an answer at most. ``None`` reads as much as the synchronous client.
    """

    users = 0
    """How many watches share it."""

    def __init__(self, settings: ServiceSettings, *, largest: int | None = None) -> None:
        self.settings = settings
        self.largest = largest
        self._api = CrewApi(settings)
        self._tls = tls_context(settings) or False
        self._proxy = SecretStr(proxy_for(settings) or "")
        self._session = self._new_session(_Connector(ssl=self._tls, limit=0, keepalive_timeout=_KEEP_ALIVE))
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        return await self._run(self._api.inputs(), self._session)

    async def kickoff(self, request: KickoffRequest) -> str:
        """
        Send a kickoff once, and return its kickoff ID. Raise UncertainKickoff if it may have started one.

        If the caller is cancelled after it was sent, an answer that is arriving is still read, and its ID logged.
        """
        # A kept connection that the peer has closed looks like a lost answer, so this one is new.
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
        """Ask how an execution is doing."""
        return await self._run(self._api.status(kickoff_id), self._session)

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
            timeout=aiohttp.ClientTimeout(
                total=self.settings.request_timeout, connect=connect_timeout(self.settings)
            ),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            trust_env=False,  # proxy_for() reads the environment for both clients
        )

    async def _run(self, flow: Flow[T], session: aiohttp.ClientSession) -> T:
        try:
            step = advance(flow, None)
            while not isinstance(step, Done):
                outcome = await self._exchange(step, session)
                is_large = isinstance(outcome, Answer) and outcome.size > _LARGE
                step = await asyncio.to_thread(advance, flow, outcome) if is_large else advance(flow, outcome)
        finally:
            flow.close()
        return cast("T", step.value)

    async def _exchange(self, request: Request, session: aiohttp.ClientSession) -> Outcome:
        """Send once. Any failure counts as sent, unless it proves that there was no open connection."""
        if request.starts_work:
            return await self._send(request, session)
        try:
            # One time limit for both: a watch has to notice its deadline while others wait for a dead crew.
            async with asyncio.timeout(self.settings.request_timeout), self._places:
                return await self._send(request, session)
        except TimeoutError as error:
            return self._api.unreachable(request, error, sent=True)

    async def _send(self, request: Request, session: aiohttp.ClientSession) -> Outcome:
        try:
            async with session.request(
                request.method,
                # Encoded: yarl would undo escapes that an odd kickoff ID needs.
                URL(request.url, encoded=True),
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                proxy=self._proxy.get_secret_value() or None,
            ) as response:
                most = most_bytes(response.status, self.largest)
                body = bytearray()
                while len(body) <= most and (chunk := await response.content.readany()):
                    body += chunk
                return received(request, response.status, response.headers, bytes(body), most)
        except _TRANSPORT_FAILURES as error:
            return self._api.unreachable(request, error, sent=not isinstance(error, _NotConnectedError))


class _NotConnectedError(aiohttp.ClientConnectionError):
    """Proves that nothing was sent, since there was no open connection yet."""


class _Connector(aiohttp.TCPConnector):
    """Connect to the crew, through a proxy or not, and tell a failure to connect from all that comes after."""

    has_connected = False

    async def connect(self, *args: Any, **options: Any) -> Any:
        """Return an open connection."""
        try:
            connection = await super().connect(*args, **options)
        except _TRANSPORT_FAILURES as error:
            raise _NotConnectedError from error
        self.has_connected = True
        return connection
