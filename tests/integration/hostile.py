"""A service on loopback that sends whatever bytes it is told to, and keeps what it was sent, byte for byte."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import trustme

from airflow_provider_crew.client.payload import KickoffRequest

Said = bytes | Callable[[], Iterable[bytes]]

CALLS: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda crew: crew.inputs(),
    "kickoff": lambda crew: crew.kickoff(KickoffRequest.of({"topic": "harbours"})),
    "status": lambda crew: crew.status("some-id"),
    "answer": lambda crew: crew.answer("some-id", b'{"task_id": "review"}'),
}


class Hostile:
    """
    Answers one request after the other with what it ``says``; the last of that stays.

    What it says is bytes, or a function that yields them for as long as somebody reads. It closes the connection
    afterwards, unless it ``keeps`` it.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.says: list[Said] = [b""]
        self.keeps = False
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = 0
        self._tls = tls
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[str]:
        """The first line of each request."""
        return [request.partition(b"\r\n")[0].decode("latin-1") for request in self.requests]

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
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_until:
            open_until.enter_context(connection)
            if self._tls:
                connection = open_until.enter_context(self._tls.wrap_socket(connection, server_side=True))
            self._open.add(connection)
            while request := _read_request(connection):
                self.requests.append(request)
                said = self.says[min(len(self.requests), len(self.says)) - 1]
                for piece in (said,) if isinstance(said, bytes) else said():
                    connection.sendall(piece)
                if not self.keeps:
                    break
        self.closed += 1


def _read_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request and not request.startswith(b"\x16"):  # TLS, which it does not speak
        if not (data := connection.recv(65536)):
            return b""
        request += data
    head, _, body = request.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            missing = int(line.partition(b":")[2]) - len(body)
            while missing > 0:
                request += (data := connection.recv(65536))
                missing -= len(data)
    return request


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


@contextlib.contextmanager
def hostile_service(tls: ssl.SSLContext | None = None) -> Iterator[Hostile]:
    service = Hostile(tls)
    try:
        yield service
    finally:
        service.close()
