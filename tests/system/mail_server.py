"""A mail server, as far as Airflow talks to one: it takes every message and keeps it."""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from types import TracebackType
from typing import Any, Self


class MailServer(socketserver.ThreadingTCPServer):
    """Receives on loopback, without a login and without TLS."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[EmailMessage] = []
        host, port = self.server_address[:2]
        self.connection: dict[str, Any] = {
            "conn_type": "smtp",
            "host": host,
            "port": port,
            "extra": '{"disable_ssl": true, "disable_tls": true, "from_email": "airflow@example.com"}',
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()


class _Session(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self._say("220 here")
        for line in self.rfile:
            match line[:4].upper():
                case b"DATA":
                    self._say("354 go on")
                    lines = b"".join(iter(self.rfile.readline, b".\r\n"))
                    self.server.mails.append(message_from_bytes(lines, EmailMessage, policy=default))
                    self._say("250 taken")
                case b"QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 ok")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
