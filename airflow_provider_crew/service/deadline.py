"""
One deadline for a whole exchange with requests.

requests and urllib3 limit the time between two bytes, so that a peer that sends one byte now and then holds a
worker for as long as it likes. Here an exchange runs in a thread of its own, and who waits for it leaves when time
is over.
"""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Exchange(Generic[T]):
    """One request and its answer. ``sent``: there was a connection, so that something may have left by it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.sent = False
        self._work = work
        self._given_up = False
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._socket: Any = None

    def run(self, seconds: float) -> T:
        """Return or raise what the work does; TimeoutError when that takes too long."""
        outcome: Future[T] = Future()
        in_context = partial(copy_context().run, self._run, outcome)
        threading.Thread(target=in_context, name="crew-exchange", daemon=True).start()
        try:
            return outcome.result(seconds)
        except BaseException:
            self._give_up()
            raise
        finally:
            del outcome  # with an error in it, it would keep this frame, and this frame it

    def begins(self, connection: HTTPConnection) -> None:
        """Take note of what is being connected, perhaps through a proxy."""
        self._connection = connection

    def goes_by(self, connection: HTTPConnection) -> None:
        """Take note of the connection just before something leaves by it, unless nobody waits any more."""
        with self._lock:
            if self._given_up:
                raise TimeoutError("nobody waits for this exchange any more")
            self.sent, self._socket = True, connection.sock

    def _run(self, outcome: Future[T]) -> None:
        _current.set(self)
        try:
            outcome.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            # Without its traceback, whose frames hold the token.
            outcome.set_exception(error.with_traceback(None))

    def _give_up(self) -> None:
        """Keep the thread from sending anything from now on, and end what it waits for."""
        with self._lock:
            self._given_up = True
        sock: Any = self._socket or (self._connection and self._connection.sock)
        with suppress(AttributeError, OSError):  # there is no connection, or no more
            # TLS within TLS, to a proxy, keeps its socket there.
            getattr(sock, "socket", sock).shutdown(socket.SHUT_RDWR)


_current: ContextVar[Exchange[Any]] = ContextVar("crew_exchange")
# What stands among the headers of an answer and is none would be logged there as it came.
logging.getLogger("urllib3.connection").addFilter(lambda _: _current not in copy_context())


class _Noted(HTTPConnection):
    def connect(self) -> None:
        _current.get().begins(self)
        super().connect()
        _current.get().goes_by(self)
        # Only a warning hangs on it. Whoever switched the check off need not be told at every poll.
        self.is_verified = True

    def request(self, *args: Any, **options: Any) -> None:
        if self.sock is not None:  # kept, and not connected anew
            _current.get().goes_by(self)
        super().request(*args, **options)


class _NotedTLS(_Noted, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Noted


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _NotedTLS


_POOLS = {"http": _Pool, "https": _TLSPool}


class DeadlineAdapter(HTTPAdapter):
    """
    A transport adapter whose connections tell the exchange that they are used in.

    :param proxy: to go through, which may hold a password
    """

    def __init__(self, proxy: str | None) -> None:
        super().__init__()
        self.proxies = {"http": proxy, "https": proxy} if proxy else {}

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools build such connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Do the same for connections through a proxy."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager
