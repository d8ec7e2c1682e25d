"""The asynchronous client: the same methods and results as the synchronous one."""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

import aiohttp
import tenacity
from yarl import URL

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.errors import CallError
from airflow_provider_crew.service.network import (
    CHUNK,
    connect_timeout,
    proxy_for,
    reason_for,
    retrying,
    trusted_certificates,
)
from airflow_provider_crew.service.payload import kickoff_payload
from airflow_provider_crew.service.wire import MAX_ANSWER_BYTES, Conversation, CrewWire, Request, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import SimpleNamespace, TracebackType

    from airflow_provider_crew.service.models import Completed, CrewInputs, Failed, Running
    from airflow_provider_crew.service.payload import KickoffOptions
    from airflow_provider_crew.service.settings import ServiceSettings

T = TypeVar("T")

_TRANSPORT_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
_NEVER_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)


class AsyncCrewClient:
    """Talks to one crew from one event loop. Use it as an asynchronous context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._wire = CrewWire(settings)
        self._tls = _tls(settings)
        self._session = self._new_session()

    async def inputs(self, *, repeat: bool = True) -> CrewInputs:
        """Ask which inputs the crew takes; without ``repeat`` just once, for someone who looks on."""
        if not repeat:
            return await self._converse(self._wire.inputs())
        return await self._repeated("GET /inputs", self._wire.inputs)

    async def kickoff(self, inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> str:
        """
        Start an execution and return its kickoff id.

        It is sent again by itself only when the service certainly did not take it. Where that cannot be known,
        UncertainKickoff is raised.
        """
        payload = kickoff_payload(inputs, **options)
        return await self._repeated("POST /kickoff", lambda: self._wire.kickoff(payload), only_if_not_taken=True)

    async def status(self, kickoff_id: str, *, repeat: bool = True) -> Running | Completed | Failed:
        """Ask how an execution is doing; without ``repeat`` just once, for a caller that looks again itself."""
        if not repeat:
            return await self._converse(self._wire.status(kickoff_id))
        return await self._repeated("GET status", lambda: self._wire.status(kickoff_id))

    async def close(self) -> None:
        """Close the kept connections."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    def _new_session(self, *, trace: aiohttp.TraceConfig | None = None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, force_close=trace is not None),
            headers={
                "User-Agent": self.settings.user_agent,
                # Undoing compression could turn a small answer into one that does not fit into memory.
                "Accept-Encoding": "identity",
                "Accept": "application/json",
            },
            timeout=aiohttp.ClientTimeout(
                total=self.settings.request_timeout, sock_connect=connect_timeout(self.settings)
            ),
            trust_env=False,  # what the environment says is read in one place for both clients
            trace_configs=[trace] if trace else None,
        )

    async def _repeated(
        self, call: str, conversation: Callable[[], Conversation[T]], *, only_if_not_taken: bool = False
    ) -> T:
        async def converse() -> T:
            return await self._converse(conversation())

        policy = tenacity.AsyncRetrying(**retrying(call, only_if_not_taken=only_if_not_taken))
        return await policy(converse)

    async def _converse(self, conversation: Conversation[T]) -> T:
        request = next(conversation)
        while True:
            outcome = await self._exchange(request)
            try:
                request = advance(conversation, outcome)
            except StopIteration as end:
                return cast("T", end.value)

    async def _exchange(self, request: Request) -> Answer | CallError:
        progress = _Progress()
        try:
            if not request.starts_work:
                return await self._send(self._session, request)
            # A kept connection that the peer has closed ends in a reset, which looks like a lost answer.
            async with self._new_session(trace=progress.trace()) as session:
                return await self._send(session, request)
        except CallError as error:
            return error
        except _TRANSPORT_FAILURES as error:
            # Returned, not raised from here: a traceback through the transport could show the token.
            sent = progress.connected if request.starts_work else not isinstance(error, _NEVER_CONNECTED)
            reason = reason_for(error, connected=sent, settings=self.settings)
            return self._wire.unreachable(request, reason, sent=sent)

    async def _send(self, session: aiohttp.ClientSession, request: Request) -> Answer:
        headers = {"Authorization": f"Bearer {self.settings.token}"}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        async with session.request(
            request.method,
            # Encoded: yarl would undo escapes that an odd kickoff id needs.
            URL(self.settings.address + request.path, encoded=True),
            data=request.body,
            headers=headers,
            allow_redirects=False,
            proxy=proxy_for(self.settings),
        ) as response:
            return Answer.received(
                response.status,
                response.headers,
                await self._read(request, response),
                secret=self.settings.token,
                now=time.time(),
            )

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise self._wire.too_large(request, response.status)
        return bytes(body)


class _Progress:
    """
    Learns from aiohttp whether a connection was made, and so whether a kickoff can have been sent.

    The kind of an exception nearly tells it as well, which is enough for reads; a time-out does not.
    """

    connected = False

    def trace(self) -> aiohttp.TraceConfig:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(self._made)
        return trace

    async def _made(
        self, *_: aiohttp.ClientSession | SimpleNamespace | aiohttp.TraceConnectionCreateEndParams
    ) -> None:
        self.connected = True


def _tls(settings: ServiceSettings) -> ssl.SSLContext | bool:
    if not settings.address.startswith("https://"):
        return True
    certificates = trusted_certificates(settings)
    return ssl.create_default_context(cafile=certificates) if certificates else False
