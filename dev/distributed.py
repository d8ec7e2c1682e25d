"""
An Airflow whose workers are Celery's, with two of whatever there may be two of.

Each of them has what another machine would give it: an address, a home with its own logs, and a server that hands
these out. All of the addresses are this machine's.
"""

from __future__ import annotations

import json
import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dev.edge import EdgeStack
from dev.loopback import ADDRESS
from dev.redis import RedisServer
from dev.rest import ApiError, seconds_since_epoch
from dev.settings import variables
from dev.stack import AirflowStack, component_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dev.processes import Process

_LOGS = "-logs"
# The addresses of all others are that of the stack.
_NETWORKS = {"scheduler": 1, "triggerer": 2, "worker": 3}
_JOBS = {"scheduler": "SchedulerJob", "triggerer": "TriggererJob", "dag-processor": "DagProcessorJob"}
_PATIENCE = 2.0


class CeleryStack(AirflowStack):
    """
    An Airflow with two schedulers, two triggerers and two Celery workers.

    ``environment`` has to name a database that all of them reach. The broker comes with the stack.

        with PostgresServer() as database, CeleryStack(home, dags_folder, database.settings) as airflow:
            airflow.processes["worker-2"].kill()
            airflow.start_what_has_ended()
    """

    _numbers: ClassVar[Mapping[str, int]] = MappingProxyType(
        dict.fromkeys(("scheduler", "triggerer", "worker", f"triggerer{_LOGS}", f"worker{_LOGS}"), 2)
    )

    def __init__(
        self, home: Path, dags_folder: Path, environment: Mapping[str, str], port: int | None = None
    ) -> None:
        self.broker = RedisServer()
        super().__init__(home, dags_folder, _settings() | self.broker.settings | dict(environment), port)
        server = self._commands.pop("log-server")
        self._commands |= {f"triggerer{_LOGS}": server, f"worker{_LOGS}": server}
        self._commands["worker"] = ["airflow", "celery", "worker", "--skip-serve-logs"]

    @property
    def executors(self) -> list[Process]:
        """Return the processes whose children supervise the tasks."""
        return self.all_of("worker")

    def start(self) -> Self:
        """Start everything, and return when all of it is healthy."""
        self.broker.start()
        return super().start()

    def stop(self) -> None:
        """Stop everything."""
        super().stop()
        self.broker.stop()

    def start_what_has_ended(self) -> None:
        """Start every process again that has ended, as whatever looks after an Airflow does."""
        if not self.broker.running:
            self.broker.start()
        super().start_what_has_ended()

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1
    ) -> list[dict[str, Any]]:
        """
        Return all that was written into a task's log, on whichever machines.

        The page shows what the machine has on which the task was last.
        """
        mapped = [f"map_index={map_index}"] if map_index >= 0 else []
        folder = "/".join([f"dag_id={dag_id}", f"run_id={run_id}", f"task_id={task_id}", *mapped])
        files = self.home.glob(f"*/logs/{folder}/attempt={try_number}.log*")
        events = [event for file in files for event in _events(file)]
        return sorted(events, key=lambda event: seconds_since_epoch(event["timestamp"]))

    def ill(self) -> list[Process]:
        """Return the processes that have not been heard of since they were last started, or for long."""
        try:
            jobs = self.api.jobs()
        except ApiError:
            return [self.processes["api-server"]]
        heard = {(job["job_type"], job["hostname"]): seconds_since_epoch(job["latest_heartbeat"]) for job in jobs}
        silent = [
            process
            for component, kind in _JOBS.items()
            for process in self.all_of(component)
            if heard.get((kind, address_of(process.name)), 0) <= process.started_at
        ]
        return silent + self._silent_workers()

    def _silent_workers(self) -> list[Process]:
        from celery import Celery
        from kombu.exceptions import OperationalError

        workers = {f"celery@{process.name}": process for process in self.all_of("worker")}
        # A connection of its own: those that are kept do not outlive a broker.
        with Celery(broker=self.broker.url) as app, app.connection_for_write() as connection:
            try:
                answers = app.control.ping(
                    list(workers), timeout=_PATIENCE, limit=len(workers), connection=connection
                )
            except (OperationalError, *connection.recoverable_connection_errors):
                answers = []
        return [process for name, process in workers.items() if not any(name in answer for answer in answers)]

    def _command(self, name: str) -> list[str]:
        command = super()._command(name)
        return [*command, "--celery-hostname", name] if component_of(name) == "worker" else command

    def _machine(self, name: str) -> dict[str, str]:
        machine = name.replace(_LOGS, "")
        if component_of(machine) not in _NETWORKS:
            return {}
        home = self.home / machine
        (home / "logs").mkdir(parents=True, exist_ok=True)
        return {ADDRESS: address_of(machine), "AIRFLOW_HOME": str(home)}


STACKS: Mapping[str, type[AirflowStack]] = MappingProxyType(
    {"local": AirflowStack, "celery": CeleryStack, "edge": EdgeStack}
)
"""What an Airflow is made of, by its executor."""


def _settings() -> dict[str, str]:
    """Return what has to be the same on all machines, and what only Celery has."""
    return variables(
        {
            "core": {"executor": "CeleryExecutor", "fernet_key": _fernet_key()},
            "api": {"secret_key": secrets.token_hex()},
            "api_auth": {"jwt_secret": secrets.token_hex()},
            "celery": {"worker_concurrency": "8"},
            # A task is handed to the broker again when this did not get to a worker, not after ten minutes.
            "scheduler": {"task_queued_timeout": "120", "task_queued_timeout_check_interval": "15"},
        }
    )


def _fernet_key() -> str:
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode()


def address_of(name: str) -> str:
    """Return the address of the machine that a process runs on."""
    network, number = _NETWORKS.get(component_of(name), 0), name.removeprefix(component_of(name)).strip("-")
    return f"127.0.{network}.{number or 1}"


def _events(file: Path) -> Iterator[dict[str, Any]]:
    """Read the lines that are whole: one may be under way."""
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
