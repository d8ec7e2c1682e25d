"""A Redis on this machine, from the system's packages, as the broker of Celery."""

from __future__ import annotations

import secrets
import shutil
import socket

from dev.loopback import HOST
from dev.server import NotReadyError, Server, ServerError

_TIMEOUT = 5.0


class RedisServer(Server):
    """
    A Redis that keeps what it was told also when it crashes.

        with RedisServer() as broker:
            broker.crash()
            broker.start()
    """

    name = "redis"

    def __init__(self) -> None:
        super().__init__()
        self._password = secrets.token_hex()
        self.url = f"redis://:{self._password}@{HOST}:{self.port}/0"

    @property
    def settings(self) -> dict[str, str]:
        """What an Airflow needs in its environment to use it."""
        return {"AIRFLOW__CELERY__BROKER_URL": self.url}

    def _prepare(self) -> list[str]:
        program = shutil.which("redis-server")
        if not program:
            raise ServerError("Redis is not installed. On Debian: apt-get install redis-server")
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self._folder),
            # Not on the command line, which everybody on the machine can read.
            "requirepass": self._password,
            "appendonly": "yes",
            "save": '""',
        }
        file = self._folder / "redis.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        return [program, str(file)]

    def _ask(self) -> None:
        try:
            with socket.create_connection((HOST, self.port), _TIMEOUT) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:  # noqa: PLR2004 - one line for each command
                    if not (more := connection.recv(1024)):
                        break
                    answer += more
        except OSError as error:
            raise NotReadyError(str(error)) from None
        if not answer.endswith(b"+PONG\r\n"):  # it reads what it kept
            raise NotReadyError(answer.decode())
