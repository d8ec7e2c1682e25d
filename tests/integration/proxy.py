"""A proxy on loopback that sends whatever it is asked for to one place, and remembers what it was asked."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator


class _Handler(socketserver.StreamRequestHandler):
    server: Proxy
    rbufsize = 0  # what is read ahead would be missing in the pipe

    def handle(self) -> None:
        first = self.rfile.readline().decode("latin-1")
        head = [first]
        while (line := self.rfile.readline().decode("latin-1")) not in {"\r\n", ""}:
            head.append(line)
        self.server.asked.append(first.strip())
        self.server.heads.append("".join(head))
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        given = headers.get("proxy-authorization", "").removeprefix("Basic ")
        self.server.credentials.append(base64.b64decode(given).decode())
        if self.server.refuses:
            self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(self.server.target) as upstream:
            if first.startswith("CONNECT "):
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                method, url, version = first.split()
                path = "/" + url.split("://", 1)[1].partition("/")[2]
                upstream.sendall(f"{method} {path} {version}\r\n{''.join(head[1:])}\r\n".encode("latin-1"))
            self._pipe(upstream)

    def _pipe(self, upstream: socket.socket) -> None:
        ends = {self.connection: upstream, upstream: self.connection}
        while True:
            for readable in select.select(list(ends), [], [], 10)[0]:
                data = readable.recv(65536)
                if not data:
                    return
                ends[readable].sendall(data)


class Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.refuses = False
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.credentials: list[str] = []

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no error of the proxy."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def running_proxy(host: str, port: int) -> Iterator[Proxy]:
    with Proxy((host, port)) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
