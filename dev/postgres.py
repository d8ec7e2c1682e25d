"""A PostgreSQL on this machine, from the system's packages, for an Airflow of which SQLite is too little."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg2  # type: ignore[import-untyped]

from dev.loopback import HOST
from dev.server import PAUSE, NotReadyError, Server, ServerError

# PostgreSQL refuses to run as root; its package brings this user.
_USER = "postgres"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "300",
    # What is written has to outlive its processes, not the machine.
    "fsync": "off",
}


class PostgresServer(Server):
    """
    A PostgreSQL with one empty database.

        with PostgresServer() as database, AirflowStack(home, dags, database.settings) as airflow:
            database.crash()
            database.start()
    """

    name = "postgres"

    def __init__(self) -> None:
        super().__init__()
        self._password = secrets.token_hex()
        self.url = f"postgresql://{_USER}:{self._password}@{HOST}:{self.port}/postgres"

    @property
    def settings(self) -> dict[str, str]:
        """What an Airflow needs in its environment to use it."""
        return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.url.replace("://", "+psycopg2://", 1)}

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement in the database, for what Airflow itself never does to it, and return the rows."""
        with (
            contextlib.closing(psycopg2.connect(self.url)) as connection,
            connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return rows

    def crash(self) -> None:
        """End it without any tidying up, as when its machine is lost."""
        if self._process and self._process.running:
            # A SIGKILL would leave children that the next start has to wait for.
            os.kill(self._process.pid, signal.SIGQUIT)
            while self._process.running:
                time.sleep(PAUSE)
        super().crash()

    def _prepare(self) -> list[str]:
        data = self._folder / "data"
        programs = _programs()
        password = self._folder / "password"
        password.write_text(self._password)
        if _is_root():
            shutil.chown(self._folder, _USER)
            shutil.chown(password, _USER)
        made = subprocess.run(  # noqa: S603 - a program of the package, and paths made here
            _as_user(
                [
                    str(programs / "initdb"),
                    f"--pgdata={data}",
                    f"--username={_USER}",
                    f"--pwfile={password}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--no-sync",
                ]
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise ServerError(f"initdb ended with {made.returncode}.\n{made.stderr}")
        settings = [f"--{name}={value}" for name, value in (_SETTINGS | {"port": str(self.port)}).items()]
        return _as_user([str(programs / "postgres"), "-D", str(data), *settings])

    def _ask(self) -> None:
        try:
            psycopg2.connect(self.url).close()
        except psycopg2.OperationalError as error:
            raise NotReadyError(str(error)) from None


def _programs() -> Path:
    """Find the server's programs, which Debian keeps away from PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    if not found and not on_path:
        raise ServerError("PostgreSQL is not installed. On Debian: apt-get install postgresql")
    return found[-1].parent if found else Path(on_path or "").parent


def _as_user(command: list[str]) -> list[str]:
    if not _is_root():
        return command
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", "--", *command]


def _is_root() -> bool:
    return os.geteuid() == 0
