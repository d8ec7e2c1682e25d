"""HTTP server, in a thread and on an event loop of its own."""

import asyncio
import math
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any

from aiohttp import web

# Longer than the pauses between requests in a test, as in real gateways.
_KEEP_ALIVE_SECONDS = 75

# Long enough for the longest kickoff ID and token that a client may send.
_LONGEST_LINE = 64 * 1024

# Event loop turns until a new connection is registered: its task starts first, then its protocol.
_TURNS_TO_ACCEPT = 2


class Listener:
    """
    Listens on one port from ``start`` to ``stop``, and can refuse connections in between.

    aiohttp's runners wait for answers in progress when they stop. A test must not wait, especially for an answer
    that never comes, so only aiohttp's protocol is used.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        address: tuple[str, int],
        tls: ssl.SSLContext | None,
        serving: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._handler = handler
        self._address = address
        self._tls = tls
        self._serving = serving
        self._begun = threading.Event()
        self._ready: Future[None] = Future()
        self._changing = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._socket: socket.socket
        self._loop: asyncio.AbstractEventLoop
        self._protocols: web.Server
        self._main: asyncio.Task[Any] | None
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="local-crew-service", daemon=True)

    def start(self) -> int:
        """Start listening and return the port. Raise OSError if the port cannot be used."""
        self._socket = _bound(self._address, listening=True)
        self._address = (self._address[0], self._socket.getsockname()[1])
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:  # such as KeyboardInterrupt
            self.stop()
            raise
        return self._address[1]

    def stop(self) -> None:
        """Stop listening, cut every connection and end the thread. You can call it more than once."""
        if not self._thread.is_alive():
            return
        self._begun.wait()
        # The thread may be ending by itself, because it could not start.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    def refuse(self, seconds: float | None) -> None:
        """Refuse connections from now on, for this many seconds or until ``accept``."""
        self._do(lambda: self._refuse(seconds))

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        self._do(self._accept)

    def _do(self, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("The local server is not running. Use it inside its with block.")
        done = asyncio.run_coroutine_threadsafe(change(), self._loop)
        # If the server itself calls this in its thread, waiting would deadlock.
        if threading.current_thread() is not self._thread:
            done.result()

    def _cancel(self) -> None:
        if self._main:
            self._main.cancel()

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(self._serve())
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            self._socket.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._begun.set()
        self._protocols = web.Server(
            self._handler,
            handler_cancellation=True,
            # The record has more detail, and an access log would add a line per request to the log of your tests.
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
        )
        async with self._serving():
            await self._listen()
            self._ready.set_result(None)
            try:
                await asyncio.sleep(math.inf)
            finally:
                async with self._changing:
                    self._cancel_reopening()
                    await self._stop_listening()
                    await self._cut_connections()

    async def _refuse(self, seconds: float | None) -> None:
        async with self._changing:
            self._cancel_reopening()
            await self._stop_listening()
            # A socket that is bound but not listening reserves the port in the meantime.
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
            self._server = await self._loop.create_server(self._protocols, sock=self._socket, ssl=self._tls)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            # asyncio loses a connection if the server closes while accepting it, so stop accepting first.
            self._loop.remove_reader(self._socket)
            for _ in range(_TURNS_TO_ACCEPT):
                await asyncio.sleep(0)
            self._server.close()
            self._server = None
        self._socket.close()

    async def _cut_connections(self) -> None:
        for connection in self._protocols.connections:
            if connection.transport is not None:
                connection.transport.abort()
        while self._protocols.connections:  # noqa: ASYNC110 - aiohttp has no event for the last connection
            await asyncio.sleep(0)


def _bound(address: tuple[str, int], *, listening: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio sets no TCP_NODELAY
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if listening:
            bound.listen()
    except OSError:
        bound.close()
        raise
    return bound
