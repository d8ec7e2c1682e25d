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
    from collections.abc import Coroutine

    from starlette.types import ASGIApp

# Longer than any test pauses between two requests, as real gateways have it.
_KEEP_ALIVE_SECONDS = 75

# Requests are cut off when the service stops; this is for the event loop to notice.
_STOP_SECONDS = 2


class _Protocol(H11Protocol):
    """Hands the connection to the application, for faults that need more than HTTP."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class Listener:
    """
    Listens on one port from ``start`` to ``stop``, and can refuse connections in between.

    uvicorn's own server class ticks ten times a second and waits for answers in progress when it stops. A test
    wants neither, least of all for an answer that never comes, so only its protocol is used.
    """

    def __init__(self, app: ASGIApp, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        self._config = Config(app, http=_Protocol, ws="none", lifespan="off", interface="asgi3", log_config=None)
        self._config.timeout_keep_alive = _KEEP_ALIVE_SECONDS
        self._config.load()
        self._state = ServerState()
        self._address = address
        self._tls = tls
        self._ready = threading.Event()
        self._reopening: asyncio.Task[None] | None = None
        self._socket: socket.socket
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="local-crew-service", daemon=True)

    def start(self) -> int:
        """Start to listen and return the port; OSError when it cannot be had."""
        self._socket = _bound(self._address)
        try:
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        self._address = (self._address[0], self._socket.getsockname()[1])
        self._thread.start()
        self._ready.wait()
        return self._address[1]

    def stop(self) -> None:
        """Stop listening, cut every connection, and end the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def refuse(self, seconds: float | None) -> None:
        """Refuse connections from now on, for so many seconds or until ``accept``."""
        self._run_in_loop(self._close(seconds))

    def accept(self) -> None:
        """Accept connections, on the same port as ever."""
        self._run_in_loop(self._open())

    def _run_in_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        await self._open()
        self._ready.set()
        await self._stopping.wait()
        await self._close(None)
        self._socket.close()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_STOP_SECONDS)

    async def _open(self) -> None:
        self._cancel_reopening()
        if self._server is None:
            self._server = await self._loop.create_server(self._protocol, sock=self._socket, ssl=self._tls)

    async def _close(self, seconds: float | None) -> None:
        self._cancel_reopening()
        if self._server is not None:
            self._server.close()
            self._server = None
            # A socket that is bound and does not listen keeps the port from everybody else meanwhile.
            self._socket = _bound(self._address)
        for connection in list(self._state.connections):
            connection.transport.abort()
        while self._state.connections:  # noqa: ASYNC110 - uvicorn has no event for the last one
            await asyncio.sleep(0)
        if seconds is not None:
            self._reopening = self._loop.create_task(self._reopen(seconds))

    async def _reopen(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._reopening = None
        await self._open()

    def _cancel_reopening(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    def _protocol(self) -> _Protocol:
        return _Protocol(self._config, self._state, app_state={}, _loop=self._loop)


def _bound(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
