"""A service that always says running, and remembers when each execution was polled."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from dev.loopback import HOST

if TYPE_CHECKING:
    from types import TracebackType

    import trustme

_END_OF_HEAD = b"\r\n\r\n"
# More than a thousand clients may connect within one second.
_BACKLOG = 4096


class PollRecorder:
    """
    The service over TLS, in a thread. It keeps a connection for as long as the client does.

    It speaks to clients of a crew and of dbt Cloud. With ``moves_on``, a crew has put out
    something more at each poll, and no log mentions it.
    """

    def __init__(self, authority: trustme.CA) -> None:
        self.connections = 0
        self.port = 0
        self.moves_on = False
        self._polls: defaultdict[str, list[float]] = defaultdict(list)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(HOST).configure_cert(self._tls)
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def polls(self) -> list[list[float]]:
        """Return when each execution was polled, in seconds since the epoch."""
        return [list(times) for times in list(self._polls.values())]

    def forget(self) -> None:
        """Begin anew."""
        self._polls.clear()
        self.connections = 0

    def answer(self, path: str) -> bytes:
        """Note a poll, and say that what it asks about is still running."""
        polls = self._polls[path]
        polls.append(time.time())
        if not path.startswith("/status/"):
            return _DBT_RUNS
        return _CREW_RUNS[min(len(polls), _MOST) if self.moves_on else 0]

    def __enter__(self) -> Self:
        self._thread.start()
        listening = self._loop.create_server(lambda: _Conversation(self), HOST, 0, ssl=self._tls, backlog=_BACKLOG)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server:
            self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Conversation(asyncio.Protocol):
    def __init__(self, recorder: PollRecorder) -> None:
        self._recorder = recorder
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - it always is one
        self._transport = transport
        self._recorder.connections += 1

    def data_received(self, data: bytes) -> None:
        """Answer every request; none has a body."""
        self._received += data
        while self._transport and _END_OF_HEAD in self._received:
            head, _, self._received = self._received.partition(_END_OF_HEAD)
            self._transport.write(self._recorder.answer(head.split(b" ", 2)[1].decode()))


def _answer(body: object) -> bytes:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    return head.encode() + _END_OF_HEAD + content


_RUNS = {
    "status": "running",
    "current_task": "research_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}
_MOST = 20
_CREW_RUNS = [_answer(_RUNS)] + [
    _answer(_RUNS | {"last_executed_task": {"name": f"task_{number}", "output": "A paragraph or two. " * 50}})
    for number in range(_MOST)
]
_DBT_RUNS = _answer({"status": {"code": 200, "is_success": True}, "data": {"id": 1, "status": 3}})
