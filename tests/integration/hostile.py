"""A server on loopback that does whatever it is told to, and keeps what it was sent, byte for byte."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import trustme

from airflow_provider_crew.client.payload import KickoffRequest

# Longer than any client waits, so that a step that stalls ends when the client hangs up.
_PATIENCE = 120.0
ACCEPTED = b'{"kickoff_id": "k-1"}'

Said = bytes | Callable[[], Iterable[bytes]]

CALLS: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda crew: crew.inputs(),
    "kickoff": lambda crew: crew.kickoff(KickoffRequest.of({"topic": "harbours"})),
    "status": lambda crew: crew.status("some-id"),
    "answer": lambda crew: crew.answer("some-id", b'{"task_id": "review"}'),
}


class _Tls:
    """TLS over a socket or over TLS, which Python's own sockets cannot do."""

    def __init__(self, below: Any, context: ssl.SSLContext) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._run(self._tls.do_handshake)

    def recv(self, size: int) -> bytes:
        try:
            return self._run(self._tls.read, size)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def sendall(self, data: bytes) -> None:
        self._run(self._tls.write, data)

    def _run(self, act: Callable[..., Any], *given: Any) -> Any:
        while True:
            try:
                return act(*given)
            except ssl.SSLWantReadError:
                self._flush()
                if data := self._below.recv(65536):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            finally:
                self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.sendall(self._outgoing.read())


class Talk:
    """One connection, from the server's side."""

    def __init__(self, connection: socket.socket, server: Hostile) -> None:
        self.raw = connection
        self.layer: Any = connection
        self.server = server
        self._unread = b""

    def read_head(self) -> bytes:
        """Return the head of a request, or b"" if there is none. Its body is not read."""
        # TLS that is not spoken here counts as a head.
        while b"\r\n\r\n" not in self._unread and not self._unread.startswith(b"\x16"):
            if not (more := self.layer.recv(65536)):
                return b""
            self._unread += more
        head, end, self._unread = self._unread.partition(b"\r\n\r\n")
        return head + end

    def read_request(self) -> bytes:
        """Return the head of a request that is read and kept to its end."""
        if head := self.read_head():
            given = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
            length = int(given[1]) if given else 0
            while len(self._unread) < length:
                if not (more := self.layer.recv(65536)):
                    raise ConnectionAbortedError
                self._unread += more
            self.server.requests.append(head + self._unread[:length])
            self._unread = self._unread[length:]
        return head

    def reset(self) -> None:
        """Break off: what has been sent may be lost on its way."""
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.raw.close()


Step = Callable[[Talk], object]
"""One thing that a server does. The last one closes the connection."""


class Hostile:
    """
    Does the same ``steps`` on each connection.

    Unless others are set, it answers one request after the other with what it ``says``; the last of that stays.
    What it says is bytes, or a function that yields them for as long as somebody reads. It closes the connection
    afterwards, unless it ``keeps`` it.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.steps: list[Step] = [*([tls(context)] if context else []), self._answer]
        self.says: list[Said] = [b""]
        self.keeps = False
        self.requests: list[bytes] = []
        self.connections = 0
        self.url_scheme = "https" if context else "http"
        self._talks: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"{self.url_scheme}://127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[str]:
        """The first line of each request."""
        return [request.partition(b"\r\n")[0].decode("latin-1") for request in self.requests]

    def settle(self) -> None:
        """Wait until every connection has ended, which is when the client has hung up."""
        for thread in list(self._talks):
            thread.join(_PATIENCE)
            assert not thread.is_alive(), "the client has left a connection open"

    def close(self) -> None:
        for listening in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._talks.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._talks[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(_PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(connection)
            talk = Talk(connection, self)
            for step in self.steps:
                step(talk)

    def _answer(self, talk: Talk) -> None:
        while talk.read_request():
            said = self.says[min(len(self.requests), len(self.says)) - 1]
            for piece in (said,) if isinstance(said, bytes) else said():
                talk.layer.sendall(piece)
            if not self.keeps:
                break


@contextlib.contextmanager
def hostile_service(context: ssl.SSLContext | None = None) -> Iterator[Hostile]:
    with contextlib.closing(Hostile(context)) as service:
        yield service


def answer(body: bytes = b"{}", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a complete answer."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def completed(output: str) -> bytes:
    """Return what a service says of an execution with this output."""
    return b'{"status": "completed", "result": {"output": "%s"}}' % output.encode()


def tls_with(certificate: trustme.LeafCert) -> ssl.SSLContext:
    """Return what a server needs to show this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


# Steps.


def tls(context: ssl.SSLContext) -> Step:
    def step(talk: Talk) -> None:
        talk.layer = _Tls(talk.layer, context)

    return step


def tunnel(talk: Talk) -> None:
    """Grant a CONNECT; what follows comes from the client to the crew."""
    if not talk.read_request().startswith(b"CONNECT "):
        raise ConnectionAbortedError
    talk.layer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")


def says(*pieces: bytes) -> Step:
    """Read a request, and answer it."""

    def step(talk: Talk) -> None:
        talk.read_request()
        for piece in pieces:
            talk.layer.sendall(piece)

    return step


def resets(*pieces: bytes) -> Step:
    """Read a request, answer it in part, and break off."""

    def step(talk: Talk) -> None:
        says(*pieces)(talk)
        if pieces:
            # Otherwise the kernel may drop what the client has not read yet.
            select.select([], [], [], 0.01)
        talk.reset()

    return step


def resets_early(talk: Talk) -> None:
    """Break off while a request arrives."""
    talk.layer.recv(1)
    talk.reset()


def stalls(talk: Talk) -> None:
    """Take what comes, and never say anything. The client hangs up, which it says first where it speaks TLS."""
    talk.read_request()
    while talk.layer.recv(65536):
        pass


def garbage(talk: Talk) -> None:
    """Answer a TLS handshake in plain text."""
    talk.layer.recv(1)
    talk.layer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    talk.raw.shutdown(socket.SHUT_WR)
    while talk.layer.recv(65536):
        pass
