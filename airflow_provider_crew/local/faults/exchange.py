"""A request and its connection, with every operation that a fault needs."""

import asyncio
import math
import socket
import struct
from collections.abc import Callable, Iterable

from aiohttp import web

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.record import ReceivedRequest

# Close without a handshake, so that the other end sees a reset (RST) instead of an end (FIN).
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


class Exchange:
    """
    A request, and the ways to answer it. Its body was read if the client has a valid token.

    ``take`` lets the crew do its work. The other methods control the part of the answer that the client sees.
    """

    def __init__(
        self, request: ReceivedRequest, raw: web.BaseRequest, answer: Callable[[ReceivedRequest], Answer]
    ) -> None:
        if raw.transport is None:
            raise ConnectionResetError("The client has gone.")
        self.request = request
        self.answered: web.StreamResponse = web.Response()
        """The response that was sent, which the server needs to reuse the connection."""
        self._raw = raw
        self._answer = answer
        self._transport = raw.transport

    async def take(self) -> Answer:
        """Have the crew handle the request, and return its answer."""
        return self._answer(self.request)

    async def send(self, answer: Answer) -> None:
        """Send the answer as a healthy server does."""
        self.request.status = answer.status
        self.answered = web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        if not self._raw.content.is_eof():
            # The rest of the body is not read, so the start of the next request can't be found.
            self.answered.force_close()
        await self.answered.prepare(self._raw)
        await self.answered.write_eof()

    async def stream(self, answer: Answer, parts: Iterable[bytes], length: int | None) -> None:
        """Send a body in parts, waiting while the client is slow to read. Without a length, send it in chunks."""
        self.request.status = answer.status
        self.answered = web.StreamResponse(status=answer.status, headers=answer.headers)
        self.answered.content_length = length
        await self.answered.prepare(self._raw)
        for part in parts:
            await self.answered.write(part)
        await self.answered.write_eof()

    def write(self, raw: bytes) -> None:
        """Write raw bytes. After that you can only close the connection."""
        self._transport.write(raw)

    async def close(self) -> None:
        """Close the connection once everything written has been sent."""
        self._transport.close()
        await self.pause()

    async def reset(self) -> None:
        """Reset the connection, so the client sees "connection reset by peer"."""
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
        self._transport.abort()
        await self.pause()

    async def pause(self, seconds: float = math.inf) -> None:
        """
        Wait, by default indefinitely.

        The server cancels this wait when the connection is lost. A fault therefore delays neither
        a client that hangs up nor the end of the server.
        """
        await asyncio.sleep(seconds)
