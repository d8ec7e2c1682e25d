"""
One deadline for a whole exchange with requests.

requests limits the time between two bytes, so that a peer that sends one byte now and then holds a worker for as
long as it likes. Here an exchange is a thread of its own, and who waits for it leaves when time is over.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

T = TypeVar("T")

# Python does not notice a signal that arrives just before it begins to wait for a lock, until that wait is over.
_NAP = 0.5


class Exchange(threading.Thread, Generic[T]):
    """
    One request and its answer.

    ``connection`` is made for it, perhaps through a proxy. ``sent``: there was one, so that something may have
    left by it.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="crew-exchange", daemon=True)
        self.sent = False
        self._work = work
        self._outcome: Future[T] = Future()
        self._given_up = False
        self._lock = threading.Lock()
        self.connection: HTTPConnection | None = None
        self._socket: Any = None

    def outcome(self, seconds: float) -> T:
        """Return or raise what the work does; TimeoutError when that takes too long."""
        self.start()
        until = time.monotonic() + seconds
        try:
            while not self._outcome.done() and (left := until - time.monotonic()) > 0:
                wait((self._outcome,), min(left, _NAP))
            return self._outcome.result(0)
        except BaseException:
            self._give_up()
            raise

    def run(self) -> None:
        """Do the work, in the thread."""
        try:
            self._outcome.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            # Without its traceback, whose frames hold the token.
            self._outcome.set_exception(error.with_traceback(None))

    def goes_by(self, connection: HTTPConnection) -> None:
        """Take note of the connection just before something leaves by it, unless nobody waits any more."""
        with self._lock:
            if self._given_up:
                raise TimeoutError("nobody waits for this exchange any more")
            self.sent, self._socket = True, connection.sock

    def _give_up(self) -> None:
        """Keep the thread from sending anything from now on, and end what it waits for."""
        with self._lock:
            self._given_up = True
        sock: Any = self._socket or (self.connection and self.connection.sock)
        with suppress(AttributeError, OSError):  # there is no connection, or no more
            sock.shutdown(socket.SHUT_RDWR)


def _exchange() -> Exchange[Any]:
    return cast("Exchange[Any]", threading.current_thread())


# Lines among the headers that are no headers would be logged as they came.
logging.getLogger("urllib3.connection").addFilter(lambda _: not isinstance(_exchange(), Exchange))


class _Noted(HTTPConnection):
    """A connection that tells the exchange that it is used in."""

    def connect(self) -> None:
        _exchange().connection = self
        super().connect()
        # urllib3 only warns by this, and would warn at every poll whoever has switched the check off.
        self.is_verified = True

    def request(self, *args: Any, **options: Any) -> None:
        if self.sock is None:
            self.connect()
        _exchange().goes_by(self)
        super().request(*args, **options)


class _NotedTLS(_Noted, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Noted


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _NotedTLS


class NotedTransport(HTTPAdapter):
    """
    Sends by connections that tell the exchange that they are used in.

    :param proxy: to go through, which may hold a password
    """

    def __init__(self, proxy: str | None) -> None:
        super().__init__()
        self.proxies = {"http": proxy, "https": proxy} if proxy else {}
        for manager in (self.poolmanager, *([self.proxy_manager_for(proxy)] if proxy else [])):
            manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
