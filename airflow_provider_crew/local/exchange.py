"""One request and its connection, with everything a fault may want to do to them."""

from __future__ import annotations

import asyncio
import http
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from airflow_provider_crew.local.record import ReceivedRequest

# Close without a handshake: the other end sees a reset (RST), not an end (FIN).
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


@dataclass
class Answer:
    """A whole HTTP answer, before it becomes bytes."""

    status: int
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    def head(self, content_length: int) -> bytes:
        """Return status line and headers, announcing a body of this length and the end of the connection."""
        kept = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
        added = [(b"content-length", b"%d" % content_length), (b"connection", b"close")]
        lines = [b"HTTP/1.1 %d %s" % (self.status, http.HTTPStatus(self.status).phrase.encode("ascii"))]
        lines += [name + b": " + value for name, value in kept + added]
        return b"\r\n".join(lines) + b"\r\n\r\n"


class Exchange:
    """
    A request that has been read completely, and the ways to answer it.

    ``take`` lets the crew do its work; everything else decides what the client gets to see of it.
    """

    def __init__(
        self, request: ReceivedRequest, app: ASGIApp, scope: Scope, channel: tuple[Receive, Send]
    ) -> None:
        self.request = request
        self._app = app
        self._scope = scope
        self._receive, self._send = channel
        self._transport: asyncio.Transport = scope["state"]["transport"]

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()

    async def take(self) -> Answer:
        """Have the crew handle the request, and keep its answer."""
        answer = Answer(status=0)

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], list(message["headers"])
            else:
                answer.body += message["body"]

        await self._app(self._scope, self._request_body, keep)
        return answer

    async def send(self, answer: Answer) -> None:
        """Answer the way a healthy server does."""
        await self.start(answer.status, [*_without_length(answer), *_length_of(answer)])
        await self.send_part(answer.body, more=False)

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send status line and headers. Without a length among them the body goes in chunks."""
        self.request.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_part(self, part: bytes, *, more: bool = True) -> None:
        """Send a part of the body; waits while the client is slow to read."""
        await self._send({"type": "http.response.body", "body": part, "more_body": more})

    def write(self, raw: bytes) -> None:
        """Put bytes on the wire as they are. Only closing the connection makes sense afterwards."""
        self._transport.write(raw)

    async def close(self) -> None:
        """Close the connection once everything written has been sent."""
        self._transport.close()
        await self.gone()

    async def reset(self) -> None:
        """Tear the connection down; the client sees "connection reset by peer"."""
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
        self._transport.abort()
        await self.gone()

    async def gone(self, within: float | None = None) -> bool:
        """
        Wait until the connection is lost, and tell whether it was lost in time.

        Every pause of a fault waits here, so that neither a client that hangs up nor the end of the service has
        to wait for the fault.
        """
        try:
            async with asyncio.timeout(within):
                # The whole request has been read, so nothing else can come.
                await self._receive()
        except TimeoutError:
            return False
        return True

    async def _request_body(self) -> Message:
        return {"type": "http.request", "body": self.request.body, "more_body": False}


def _without_length(answer: Answer) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in answer.headers if name.lower() != b"content-length"]


def _length_of(answer: Answer) -> list[tuple[bytes, bytes]]:
    if answer.status in (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED):
        return []
    return [(b"content-length", b"%d" % len(answer.body))]
