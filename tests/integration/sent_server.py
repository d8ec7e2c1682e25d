"""A crew and its proxy on loopback, scripted step by step, that count what arrives of a kickoff."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

# Longer than any client waits, so that a step that stalls ends when the client hangs up.
_PATIENCE = 120.0
ACCEPTED = b'{"kickoff_id": "k-1"}'


class Trust(NamedTuple):
    """Certificates: the file of the authority to trust, what it has issued, and what another has."""

    authority: str
    known: ssl.SSLContext
    unknown: ssl.SSLContext


class _Layer(Protocol):
    """What bytes come from and go to: a socket, or TLS on top of another layer."""

    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...


class _Tls:
    """
    The server's side of TLS over any layer, so that TLS can run inside of TLS.

    Python's own sockets cannot do the latter.
    """

    def __init__(self, below: _Layer, context: ssl.SSLContext) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._run(self._tls.do_handshake)

    @property
    def has_unread(self) -> bool:
        below = isinstance(self._below, _Tls) and self._below.has_unread
        return below or self._incoming.pending > 0 or self._tls.pending() > 0

    def recv(self, size: int, /) -> bytes:
        try:
            return self._run(self._tls.read, size)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def sendall(self, data: bytes, /) -> None:
        self._run(self._tls.write, data)

    def _run(self, act: Callable[..., Any], *args: Any) -> Any:
        while True:
            try:
                done = act(*args)
            except ssl.SSLWantReadError:
                self._flush()
                if data := self._below.recv(65536):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert
                raise
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.sendall(self._outgoing.read())


@dataclass
class Arrived:
    """What arrived while one play was on."""

    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """Bodies of requests, complete ones only."""
    after_connect: int = 0
    """Connections on which all was ready for the kickoff."""

    @property
    def lines(self) -> list[str]:
        return [head.partition(b"\r\n")[0].decode("latin-1") for head in self.heads]

    @property
    def posts(self) -> list[str]:
        return [line for line in self.lines if line.startswith("POST ")]

    @property
    def credentials(self) -> list[bytes | None]:
        """What each request that came to a proxy gave as Basic credentials."""
        return [_credentials(head) for head in self.heads]


def _credentials(head: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"proxy-authorization":
            return base64.b64decode(value.strip().removeprefix(b"Basic "))
    return None


class Talk:
    """One connection, from the server's side."""

    def __init__(self, connection: socket.socket, arrived: Arrived) -> None:
        self.raw = connection
        self.layer: _Layer = connection
        self.arrived = arrived
        self._unread = b""

    def start_tls(self, context: ssl.SSLContext) -> None:
        self.layer = _Tls(self.layer, context)

    def read_head(self) -> bytes:
        """Return the head of a request, b"" if there is none; the body is not read."""
        data = self._unread
        while b"\r\n\r\n" not in data:
            if not (more := self.layer.recv(65536)):
                if data:
                    self.arrived.heads.append(data)
                return b""
            data += more
        head, _, self._unread = data.partition(b"\r\n\r\n")
        self.arrived.heads.append(head)
        return head

    def read_request(self) -> bytes:
        """Return the head of a request that is read to its end."""
        head = self.read_head()
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        while len(self._unread) < length:
            if not (more := self.layer.recv(65536)):
                return head
            self._unread += more
        if head:
            self.arrived.bodies.append(self._unread[:length])
        self._unread = self._unread[length:]
        return head

    def send(self, data: bytes) -> None:
        self.layer.sendall(data)

    def wait_for_bytes(self) -> None:
        """Wait until something has arrived, and leave it where it is."""
        if not (isinstance(self.layer, _Tls) and self.layer.has_unread):
            select.select([self.raw], [], [], _PATIENCE)

    def wait_for_hang_up(self) -> None:
        """Do nothing until the client has gone, which it says first where it speaks TLS."""
        while self.layer.recv(65536):
            pass

    def reset(self) -> None:
        """Break off: what has been sent may be lost on its way."""
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.raw.close()


Step = Callable[[Talk], object]
"""One thing that a server does. The last one of a play closes the connection."""


class SentServer:
    """Plays the same steps on each connection. Tests share it, and each begins with a play of its own."""

    def __init__(self) -> None:
        self._steps: Sequence[Step] = ()
        self.arrived = Arrived()
        self._talks: list[threading.Thread] = []
        self._listeners = [socket.create_server(("127.0.0.1", 0))]
        with contextlib.suppress(OSError):  # some containers have no IPv6
            self._listeners.append(socket.create_server(("::1", 0), family=socket.AF_INET6))
        self._threads = [
            threading.Thread(target=self._accept, args=(each,), daemon=True) for each in self._listeners
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        return self._listeners[0].getsockname()[1]

    @property
    def ipv6_port(self) -> int | None:
        return self._listeners[1].getsockname()[1] if len(self._listeners) > 1 else None

    def play(self, *steps: Step) -> Arrived:
        """Do this on each connection from now on. Return what arrives meanwhile."""
        self._steps, self.arrived, self._talks = steps, Arrived(), []
        return self.arrived

    def settle(self) -> None:
        """Wait until every connection of the play has ended, which is when the client has hung up."""
        for thread in list(self._talks):
            thread.join(_PATIENCE)
            assert not thread.is_alive(), "the client has left a connection open"

    def close(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self.arrived.connections += 1
                thread = threading.Thread(target=_serve, args=(connection, self._steps, self.arrived), daemon=True)
                self._talks.append(thread)
                thread.start()


def _serve(connection: socket.socket, steps: Sequence[Step], arrived: Arrived) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        talk = Talk(connection, arrived)
        for step in steps:
            step(talk)


@contextlib.contextmanager
def sent_server() -> Iterator[SentServer]:
    server = SentServer()
    try:
        yield server
    finally:
        server.close()


def answer(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    """Return a complete answer."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def tls(context: ssl.SSLContext) -> Step:
    return lambda talk: talk.start_tls(context)


def tunnel(talk: Talk) -> None:
    """Grant a CONNECT; what follows comes from the client to the crew."""
    if not talk.read_request().startswith(b"CONNECT "):
        raise ConnectionAbortedError
    talk.send(b"HTTP/1.1 200 Connection established\r\n\r\n")


def ready(talk: Talk) -> None:
    """Note that nothing keeps the client from sending its kickoff."""
    talk.arrived.after_connect += 1


def says(*pieces: bytes) -> Step:
    """Read a request, and answer it."""

    def step(talk: Talk) -> None:
        talk.read_request()
        for piece in pieces:
            talk.send(piece)

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


def resets_unread(talk: Talk) -> None:
    """Break off when a request has arrived that nothing has read."""
    talk.wait_for_bytes()
    talk.reset()


def stalls_unread(talk: Talk) -> None:
    """Take what comes, and never say anything."""
    talk.wait_for_hang_up()


def stalls(talk: Talk) -> None:
    """Read a request, and never answer it."""
    talk.read_request()
    talk.wait_for_hang_up()


def garbage(talk: Talk) -> None:
    """Answer a TLS handshake in plain text."""
    talk.wait_for_bytes()
    talk.layer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    talk.raw.shutdown(socket.SHUT_WR)
    talk.wait_for_hang_up()
