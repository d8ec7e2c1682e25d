"""The asynchronous client: the same methods and results as the synchronous one."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar, cast

import aiohttp
import tenacity
from yarl import URL

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.network import (
    connect_timeout,
    is_trusted,
    proxy_for,
    reason_for,
    timed_out,
    tls_context,
)
from airflow_provider_crew.service.repeating import repeating
from airflow_provider_crew.service.wire import (
    INTERRUPTED_KICKOFF,
    MAX_ANSWER_BYTES,
    Conversation,
    CrewWire,
    Request,
    advance,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import SimpleNamespace, TracebackType

    from airflow_provider_crew.service.errors import CallError
    from airflow_provider_crew.service.models import Completed, CrewInputs, Failed, Paused, Running
    from airflow_provider_crew.service.payload import KickoffRequest
    from airflow_provider_crew.service.settings import ServiceSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

_TRANSPORT_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
# As much as the synchronous client takes; gateways send headers longer than aiohttp's 8 KB.
_MAX_HEADER_BYTES = 65536
# Polls under way, and so connections that are kept; aiohttp has as many at the most.
_MOST_AT_ONCE = 100
# aiohttp's own 15 seconds would mean a new connection for every poll at a usual interval.
_KEEP_ALIVE = 120.0


class AsyncCrewClient:
    """
    Talks to one crew from one event loop. Use it as an asynchronous context manager, or close it.

    aiohttp by itself sends a read once more when its connection breaks off.

    :param settings: the crew
    :param largest: the most that is read of an answer, in bytes, by one who has no use for more
    """

    def __init__(self, settings: ServiceSettings, *, largest: int | None = None) -> None:
        self.settings = settings
        self.largest = largest
        self._wire = CrewWire(settings)
        # Encoded: yarl would undo escapes that an odd kickoff id needs.
        self._address = URL(settings.address, encoded=True)
        self._root = self._address.raw_path.rstrip("/")
        self._tls = tls_context(settings) or False
        self._proxy = proxy_for(settings)
        self._session = self._new_session()
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def inputs(self, *, repeat: bool = True, wake_up_within: float = 0.0) -> CrewInputs:
        """
        Ask which inputs the crew takes; without ``repeat`` just once, for someone who looks on.

        A crew that may be waking up after a quiet period is given ``wake_up_within`` seconds.
        """
        if not repeat:
            return await self._converse(self._wire.inputs())
        return await self._repeated("GET /inputs", self._wire.inputs, wake_up_within=wake_up_within)

    async def kickoff(self, request: KickoffRequest) -> str:
        """
        Send a kickoff once, and return its kickoff id.

        Where it cannot be known whether it started an execution, UncertainKickoff is raised.
        """
        return await self._converse(self._wire.kickoff(request))

    def status(self, kickoff_id: str, *, repeat: bool = True) -> Awaitable[Running | Paused | Completed | Failed]:
        """Ask how an execution is doing; without ``repeat`` just once, for a caller that polls again itself."""
        # No coroutine around the coroutine: each is resumed at every step of every poll.
        if not repeat:
            return self._converse(self._wire.status(kickoff_id))
        return self._repeated("GET status", lambda: self._wire.status(kickoff_id))

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

    def _new_session(self, *, keep_alive: bool = True) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._tls,
                force_close=not keep_alive,
                keepalive_timeout=_KEEP_ALIVE if keep_alive else None,
            ),
            trace_configs=[_telling_of_connections()],
            headers={
                "User-Agent": self.settings.user_agent,
                # No compression, and none undone: a small answer could become one that does not fit into memory.
                "Accept-Encoding": "identity",
                "Accept": "application/json",
            },
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=self.settings.request_timeout, sock_connect=connect_timeout(self.settings)
            ),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            trust_env=False,  # what the environment says is read in one place for both clients
        )

    async def _repeated(
        self, call: str, conversation: Callable[[], Conversation[T]], *, wake_up_within: float = 0.0
    ) -> T:
        async def converse() -> T:
            return await self._converse(conversation())

        return await tenacity.AsyncRetrying(**repeating(call, wake_up_within=wake_up_within))(converse)

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
            # Outside the time limit: waiting here says nothing about the service.
            async with self._places:
                if not request.starts_work:
                    return await self._send(self._session, request, progress)
                # A kept connection that the peer has closed ends in a reset, which looks like a lost answer.
                async with self._new_session(keep_alive=False) as session:
                    return await self._send(session, request, progress)
        except _TRANSPORT_FAILURES as error:
            # Returned, not raised from here: a traceback through the transport could show the token.
            reason = reason_for(error, connected=progress.sent, settings=self.settings)
            return self._wire.unreachable(
                request, reason, sent=progress.sent, trusted=is_trusted(error), timed_out=timed_out(error)
            )
        except BaseException:
            if request.starts_work and progress.sent:
                log.warning(INTERRUPTED_KICKOFF)
            raise

    def _headers(self, request: Request) -> dict[str, str]:
        """Return what goes to the crew alone: a session's own headers go to a proxy as well, and can be seen."""
        authorization = {"Authorization": f"Bearer {self.settings.token}"}
        return authorization if request.body is None else authorization | {"Content-Type": "application/json"}

    async def _send(
        self, session: aiohttp.ClientSession, request: Request, progress: _Progress
    ) -> Answer | CallError:
        async with session.request(
            request.method,
            self._address.with_path(self._root + request.path, encoded=True),
            data=request.body,
            headers=self._headers(request),
            allow_redirects=False,
            proxy=self._proxy,
            trace_request_ctx=progress,
        ) as response:
            # What stands in the way of the crew may say so at any length.
            limit = (self.largest if response.ok else None) or MAX_ANSWER_BYTES
            body = await _read(response, limit)
            if body is None:
                return self._wire.too_large(request, response.status, limit=limit)
            return Answer.received(
                response.status,
                response.headers,
                body,
                secrets=(self.settings.token, *request.secrets),
                now=time.time(),
            )


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """Return the body as it came, None when it is over the limit."""
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


@dataclass(slots=True)
class _Progress:
    """Whether an exchange has had a connection, so that something may have left by it."""

    sent: bool = False


async def _connected(_: object, trace: SimpleNamespace, __: object) -> None:
    trace.trace_request_ctx.sent = True


def _telling_of_connections() -> aiohttp.TraceConfig:
    """Return what tells an exchange of its connection just before something leaves by it."""
    telling = aiohttp.TraceConfig()
    telling.on_connection_create_end.append(_connected)
    telling.on_connection_reuseconn.append(_connected)
    return telling
