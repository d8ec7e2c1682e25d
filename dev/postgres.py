"""A PostgreSQL on this machine, from the system's packages, for an Airflow of which SQLite is too little."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg2  # type: ignore[import-untyped]

from dev.loopback import HOST, free_port
from dev.processes import Guardian, Process

if TYPE_CHECKING:
    from types import TracebackType

# PostgreSQL refuses to run as root; its package brings this user.
_USER = "postgres"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "300",
    # What is written has to outlive its processes, not the machine.
    "fsync": "off",
}
_PAUSE = 0.1


class PostgresError(Exception):
    """PostgreSQL is not installed, or did not come up."""


class PostgresServer:
    """
    A PostgreSQL with a folder of its own, on loopback, with one empty database.

        with PostgresServer() as database, AirflowStack(home, dags, database.settings) as airflow:
            database.crash()
            database.start()
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._port = free_port()
        self._password = secrets.token_hex()
        self._url = f"postgresql://{_USER}:{self._password}@{HOST}:{self._port}/postgres"
        self._guardian: Guardian | None = None
        self._process: Process | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What an Airflow needs in its environment to use it."""
        return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._url.replace("://", "+psycopg2://", 1)}

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.running

    def execute(self, statement: str, *values: object) -> None:
        """Execute a statement in the database, for what Airflow itself never does to it."""
        with (
            contextlib.closing(psycopg2.connect(self._url)) as connection,
            connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement, values)

    def start(self, timeout: float = 60) -> Self:
        """Start it, or start it again, and return when it takes connections."""
        try:
            self._process = self._process or self._new_process()
            self._process.start()
            self._wait_for_connections(self._process, timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def crash(self) -> None:
        """End it without any tidying up, as when its machine is lost."""
        if self._process:
            # A SIGKILL would leave children that the next start has to wait for.
            os.kill(self._process.pid, signal.SIGQUIT)
            while self._process.running:
                time.sleep(_PAUSE)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self.crash()
        if self._process:
            self._process.kill()
        if self._guardian:
            self._guardian.dismiss()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _new_process(self) -> Process:
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
            raise PostgresError(f"initdb ended with {made.returncode}.\n{made.stderr}")
        settings = [f"--{name}={value}" for name, value in (_SETTINGS | {"port": str(self._port)}).items()]
        with (self._folder / "in-use").open("w") as lock:
            self._guardian = Guardian(lock.fileno())
        command = _as_user([str(programs / "postgres"), "-D", str(data), *settings])
        return Process("postgres", command, dict(os.environ), self._folder / "postgres.log", self._guardian)

    def _wait_for_connections(self, process: Process, timeout: float) -> None:
        until = time.monotonic() + timeout
        while True:
            try:
                psycopg2.connect(self._url).close()
            except psycopg2.OperationalError as error:
                if not process.running or time.monotonic() > until:
                    raise PostgresError(f"PostgreSQL takes no connections: {error}\n{process.tail()}") from None
            else:
                return
            time.sleep(_PAUSE)


def _programs() -> Path:
    """Find the server's programs, which Debian keeps away from PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    if not found and not on_path:
        raise PostgresError("PostgreSQL is not installed. On Debian: apt-get install postgresql")
    return found[-1].parent if found else Path(on_path or "").parent


def _as_user(command: list[str]) -> list[str]:
    if not _is_root():
        return command
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", "--", *command]


def _is_root() -> bool:
    return os.geteuid() == 0
