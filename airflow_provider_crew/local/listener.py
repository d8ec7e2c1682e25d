"""The HTTP server: uvicorn's protocol on an event loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from starlette.types import ASGIApp

# Longer than any test pauses between two requests, as real gateways have it.
_KEEP_ALIVE_SECONDS = 75

# Until a connection that is just being accepted is among the known ones: its task starts, then its protocol.
_TURNS_TO_ACCEPT = 2

# Requests are cut off when the service stops; this is for the event loop to notice.
_STOP_SECONDS = 2


class _Protocol(H11Protocol):
    """Hands the connection to the application, for faults that need more than HTTP."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}
        # The record tells more, and nobody asked for a line per request in the log of their tests.
        self.access_log = False


class Listener:
    """
    Listens on one port from ``start`` to ``stop``, and can refuse connections in between.

    uvicorn's own server class ticks ten times a second and waits for answers in progress when it stops. A test
    wants neither, least of all for an answer that never comes, so only its protocol is used.
    """

    def __init__(self, app: ASGIApp, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        self._config = Config(
            app, http=_Protocol, ws="none", lifespan="off", interface="asgi3", log_config=None, proxy_headers=False
        )
        self._config.timeout_keep_alive = _KEEP_ALIVE_SECONDS
        self._config.load()
        self._state = ServerState()
        self._address = address
        self._tls = tls
        self._ready = threading.Event()
        self._changing = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._socket: socket.socket
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="local-crew-service", daemon=True)

    def start(self) -> int:
        """Start to listen and return the port; OSError when it cannot be had."""
        self._socket = _bound(self._address, listening=True)
        self._address = (self._address[0], self._socket.getsockname()[1])
        self._thread.start()
        self._ready.wait()
        return self._address[1]

    def stop(self) -> None:
        """Stop listening, cut every connection, and end the thread. Once more does no harm."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def refuse(self, seconds: float | None) -> None:
        """Refuse connections from now on, for so many seconds or until ``accept``."""
        self._do(lambda: self._refuse(seconds))

    def accept(self) -> None:
        """Accept connections, on the same port as ever."""
        self._do(self._accept)

    def _do(self, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("The local crew service is not running. Use it inside its with block.")
        done = asyncio.run_coroutine_threadsafe(change(), self._loop)
        # Called back by the service itself, waiting would be waiting for oneself.
        if threading.current_thread() is not self._thread:
            done.result()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        await self._listen()
        self._ready.set()
        await self._stopping.wait()
        async with self._changing:
            self._cancel_reopening()
            await self._stop_listening()
            await self._cut_connections()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_STOP_SECONDS)

    async def _refuse(self, seconds: float | None) -> None:
        async with self._changing:
            self._cancel_reopening()
            await self._stop_listening()
            # A socket that is bound and does not listen keeps the port from everybody else meanwhile.
            self._socket = _bound(self._address, listening=False)
            await self._cut_connections()
            if seconds is not None:
                self._reopening = self._loop.create_task(self._reopen(seconds))

    async def _reopen(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with self._changing:
            self._reopening = None
            await self._listen()

    async def _accept(self) -> None:
        async with self._changing:
            self._cancel_reopening()
            await self._listen()

    def _cancel_reopening(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await self._loop.create_server(self._protocol, sock=self._socket, ssl=self._tls)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            # asyncio loses a connection whose server is closed while it is being accepted, so that comes first.
            self._loop.remove_reader(self._socket)
            for _ in range(_TURNS_TO_ACCEPT):
                await asyncio.sleep(0)
            self._server.close()
            self._server = None
        self._socket.close()

    async def _cut_connections(self) -> None:
        for connection in list(self._state.connections):
            connection.transport.abort()
        while self._state.connections:  # noqa: ASYNC110 - uvicorn has no event for the last one
            await asyncio.sleep(0)

    def _protocol(self) -> _Protocol:
        return _Protocol(self._config, self._state, app_state={}, _loop=self._loop)


def _bound(address: tuple[str, int], *, listening: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio lets answers wait
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if listening:
            bound.listen()
    except OSError:
        bound.close()
        raise
    return bound
