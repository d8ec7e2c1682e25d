"""A service that sends back whatever bytes it is given, and both clients in front of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.settings import ServiceSettings
from tests.async_crew import AsyncCrew


class AnyService:
    """Reads a request, keeps its first lines, sends ``answer``, and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, name="any-service", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    @property
    def kickoffs(self) -> int:
        """How many kickoffs arrived since ``asked`` was emptied."""
        return sum(head.startswith(b"POST ") for head in self.asked)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(5)
                self._exchange(connection)

    def _exchange(self, connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            if not (part := connection.recv(65536)):
                return
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        self.asked.append(head)
        missing = _length(head) - len(body)
        while missing > 0 and (part := connection.recv(65536)):
            missing -= len(part)
        connection.sendall(self.answer)


def _length(head: bytes) -> int:
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(lengths[0].split(b":")[1]) if lengths else 0


@contextmanager
def both_clients(settings: ServiceSettings) -> Iterator[tuple[CrewClient, AsyncCrew]]:
    """Open a client of each kind."""
    crews = CrewClient(settings), AsyncCrew(settings)
    try:
        yield crews
    finally:
        for crew in crews:
            crew.close()
