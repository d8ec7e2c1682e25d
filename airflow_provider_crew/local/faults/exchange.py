"""One request and its connection, with everything a fault may want to do to them."""

import asyncio
import math
import socket
import struct
from collections.abc import Callable, Iterable

from aiohttp import web

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.record import ReceivedRequest

# Close without a handshake: the other end sees a reset (RST), not an end (FIN).
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


class Exchange:
    """
    A request, and the ways to answer it. Its body was read if the client has a valid token.

    ``take`` lets the crew do its work; everything else decides what the client gets to see of it.
    """

    def __init__(
        self, request: ReceivedRequest, raw: web.BaseRequest, answer: Callable[[ReceivedRequest], Answer]
    ) -> None:
        if raw.transport is None:
            raise ConnectionResetError("The client has gone.")
        self.request = request
        self.answered: web.StreamResponse = web.Response()
        """What was sent, for the server to go on with the connection."""
        self._raw = raw
        self._answer = answer
        self._transport = raw.transport

    async def take(self) -> Answer:
        """Have the crew handle the request, and return its answer."""
        return self._answer(self.request)

    async def send(self, answer: Answer) -> None:
        """Answer the way a healthy server does."""
        self.request.status = answer.status
        self.answered = web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        if not self._raw.content.is_eof():
            # The rest of the body is not read, so the next request cannot be told from it.
            self.answered.force_close()
        await self.answered.prepare(self._raw)
        await self.answered.write_eof()

    async def stream(self, answer: Answer, parts: Iterable[bytes], length: int | None) -> None:
        """Answer with a body in parts, waiting while the client is slow to read; without a length in chunks."""
        self.request.status = answer.status
        self.answered = web.StreamResponse(status=answer.status, headers=answer.headers)
        self.answered.content_length = length
        await self.answered.prepare(self._raw)
        for part in parts:
            await self.answered.write(part)
        await self.answered.write_eof()

    def write(self, raw: bytes) -> None:
        """Put bytes on the wire as they are. Only closing the connection makes sense afterwards."""
        self._transport.write(raw)

    async def close(self) -> None:
        """Close the connection once everything written has been sent."""
        self._transport.close()
        await self.pause()

    async def reset(self) -> None:
        """Tear the connection down; the client sees "connection reset by peer"."""
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
        self._transport.abort()
        await self.pause()

    async def pause(self, seconds: float = math.inf) -> None:
        """
        Wait, for ever if nothing else is said.

        The server cancels whatever waits here as soon as the connection is lost. So neither a client that hangs
        up nor the end of the service has to wait for a fault.
        """
        await asyncio.sleep(seconds)
