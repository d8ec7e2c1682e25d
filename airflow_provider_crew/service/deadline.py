"""
One deadline and one limit of size for a whole exchange, below requests.

requests and urllib3 limit the time between two bytes, so a peer that sends one byte now and then holds a worker
for as long as it likes. Here every read and write of a connection gets the time that is left of the exchange.
They also read some malformed answers to an end that never comes, so everything that is received is counted.
"""

from __future__ import annotations

import http.client
import io
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from urllib3 import PoolManager


class TooMuchReceived(Exception):
    """A peer sends more than an exchange may bring."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer: by when it must be over, how much it may bring, and how far it came."""

    deadline: float
    bytes_left: int
    connected: bool = False

    def seconds_left(self) -> float:
        """Raise TimeoutError when none are."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the exchange took longer than its deadline")
        return left

    def received(self, size: int) -> None:
        """Raise TooMuchReceived when it is."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise TooMuchReceived


_current: ContextVar[Exchange] = ContextVar("crew_exchange")


@contextmanager
def exchange(seconds: float, most_bytes: int) -> Iterator[Exchange]:
    """Bound everything that is sent and received inside by one deadline, and by one limit of size."""
    running = Exchange(deadline=time.monotonic() + seconds, bytes_left=most_bytes)
    token = _current.set(running)
    try:
        yield running
    finally:
        _current.reset(token)


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        running = _current.get()
        self._sock.settimeout(running.seconds_left())
        size = self._raw.readinto(buffer)
        running.received(size or 0)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Socket:
    """A connected socket whose reads and writes end at the deadline of the exchange under way."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock))

    def sendall(self, data: Any) -> None:
        # A kept connection is not made anew, so it is here that something is known to be on its way.
        _current.get().connected = True
        self._sock.settimeout(_current.get().seconds_left())
        self._sock.sendall(data)


class _TunnelSocket(_Socket):
    """What is sent to the proxy to reach the crew is not sent to the crew."""

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(_current.get().seconds_left())
        self._sock.sendall(data)


class _Response(http.client.HTTPResponse):
    """Skips every interim answer; http.client skips only 100, and takes what follows for the next one."""

    def begin(self) -> None:
        super().begin()
        # Whatever among the headers is none is left out, and urllib3 would log all of it.
        self.msg.defects.clear()
        self.msg.set_payload("")
        if self.status == HTTPStatus.SWITCHING_PROTOCOLS:
            self.will_close = True  # whatever follows is no HTTP

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not HTTPStatus.CONTINUE < status < HTTPStatus.OK or status == HTTPStatus.SWITCHING_PROTOCOLS:
                return version, status, reason
            http.client.parse_headers(self.fp)


def _connected(connection: HTTPConnection) -> None:
    _current.get().connected = True
    connection.sock = _Socket(connection.sock)


class _Connection(HTTPConnection):
    response_class = _Response

    def connect(self) -> None:
        super().connect()
        _connected(self)


class _TLSConnection(HTTPSConnection):
    response_class = _Response

    @property
    def is_connected(self) -> bool:
        """Whether a kept connection can be used: what it holds already would be taken for the next answer."""
        # Within TLS to a proxy, urllib3's own socket does not tell.
        tell = getattr(self.sock, "pending", lambda: 0)
        return super().is_connected and not tell()

    def connect(self) -> None:
        super().connect()
        _connected(self)
        # Only a warning hangs on it. Whoever switched the check off need not be told at every look.
        self.is_verified = True

    def _tunnel(self) -> None:
        # The proxy's answer is bounded as well; TLS then needs the bare socket again.
        bare = self.sock
        self.sock = _TunnelSocket(bare)
        try:
            super()._tunnel()
        finally:
            if self.sock is not None:
                self.sock = bare


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class DeadlineAdapter(HTTPAdapter):
    """A transport adapter that keeps to the deadline of the exchange it is used in."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools build connections that know the deadline."""
        super().init_poolmanager(*args, **kwargs)
        _use_own_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Do the same for connections through a proxy."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        _use_own_pools(manager)
        return manager


def _use_own_pools(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
