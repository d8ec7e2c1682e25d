"""A whole Airflow on this machine, for the demo, for exploring and for the system tests."""

from __future__ import annotations

import fcntl
import re
import sys
import time
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dev.loopback import HOST, free_port
from dev.processes import Guardian, Process, stop_all
from dev.rest import AirflowApi, seconds_since_epoch
from dev.settings import environment as airflow_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from dev.rest import Health

_PAUSE = 0.2
_COMMANDS = {
    "api-server": ["airflow", "api-server"],
    # Not with their own log servers, which listen on every address of the machine.
    "scheduler": ["airflow", "scheduler", "--skip-serve-logs"],
    "triggerer": ["airflow", "triggerer", "--skip-serve-logs"],
    "dag-processor": ["airflow", "dag-processor"],
    "log-server": ["dev.loopback"],
}
_COMPONENTS = ("scheduler", "triggerer", "dag-processor")


class StackError(Exception):
    """Airflow did not come up. The message says what failed, with the end of its log."""


class AirflowStack:
    """
    An Airflow with a home of its own: API server, scheduler, triggerer and DAG processor, as processes.

    ``environment`` is added to that of the processes, for connections and for other settings of Airflow. Nothing
    else that is set for Airflow in this process gets there. The page lets everybody on this machine in as admin.

        with AirflowStack(home, dags_folder, {"AIRFLOW_CONN_CREW_DEFAULT": service.connection_uri}) as airflow:
            airflow.api.wait_for_dag("report")
            run_id = airflow.api.trigger("report", {"topic": "ferries"})
            airflow.processes["triggerer"].kill()
            airflow.processes["triggerer"].start()
            airflow.wait_until_healthy()
            assert airflow.api.wait_for("report", run_id, timeout=60) == "success"
    """

    _numbers: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """How many there are of what there is more than one of."""

    def __init__(
        self, home: Path, dags_folder: Path, environment: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        port = port or free_port()
        self.home = home.resolve()
        self.logs = self.home / "logs" / "processes"
        self.url = f"http://{HOST}:{port}"
        self.api = AirflowApi(self.url)
        self.processes: dict[str, Process] = {}
        self._awaited: list[Process] = []
        self._environment = airflow_environment(self.home, dags_folder.resolve(), port=port, log_port=free_port())
        self._environment |= environment or {}
        self._commands = dict(_COMMANDS)
        self._more: list[Process] = []
        self._guardian: Guardian | None = None

    def start(self) -> Self:
        """Start everything, and return when all of it is healthy."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._guardian = self._new_guardian()
        try:
            self._migrate(self._guardian)
            for component in self._commands:
                for number in range(self._numbers.get(component, 1)):
                    name = _name(component, number)
                    self.processes[name] = self._new_process(name, self._command(name), self._guardian)
                    self.processes[name].start()
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything."""
        self._awaited = [*self.processes.values(), *self._more]
        stop_all(self._awaited)
        if self._guardian:
            self._guardian.dismiss()

    @property
    def awaited(self) -> list[str]:
        """Return what is waited for, for people who wait with it: to come up, or to end."""
        return [process.name for process in self._awaited if process.running]

    def all_of(self, component: str) -> list[Process]:
        """Return its processes, such as all schedulers, as far as they were there from the start."""
        return [process for name, process in self.processes.items() if component_of(name) == component]

    def command(self, *arguments: str) -> None:
        """Run one of Airflow's own commands, as people do in a terminal beside it."""
        if self._guardian is None:
            raise RuntimeError("Airflow does not run")
        self._run(arguments[0], ["airflow", *arguments], self._guardian)

    @property
    def executors(self) -> list[Process]:
        """Return the processes whose children supervise the tasks."""
        return self.all_of("scheduler")

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1
    ) -> list[dict[str, Any]]:
        """Return all that was written into a task's log."""
        return self.api.log_events(dag_id, run_id, task_id, try_number, map_index)

    def start_another(self, component: str, environment: Mapping[str, str] | None = None) -> Process:
        """Start one more process, maybe with other settings. The health of the whole does not depend on it."""
        if self._guardian is None:
            raise RuntimeError("Airflow does not run")
        name = _name(component, self._numbers.get(component, 1) + len(self._more))
        process = self._new_process(name, self._command(name), self._guardian, environment)
        self._more.append(process)
        process.start()
        return process

    def start_what_has_ended(self) -> None:
        """Start every process again that has ended, as whatever looks after an Airflow does."""
        for process in self.processes.values():
            if not process.running:
                process.start()

    def wait_until_healthy(self, timeout: float = 300) -> None:
        """Wait until every component has been heard of since it was last started."""
        until = time.monotonic() + timeout
        while True:
            for process in self.processes.values():
                if not process.running:
                    raise StackError(_obituary(process))
            self._awaited = self.ill()
            if not self._awaited:
                return
            if time.monotonic() > until:
                names = ", ".join(process.name for process in self._awaited)
                logs = "\n\n".join(_last_words(process) for process in self._awaited)
                raise StackError(f"Airflow was not healthy after {timeout:.0f} s. Missing: {names}\n{logs}")
            time.sleep(_PAUSE)

    def ill(self) -> list[Process]:
        """Return the processes that have not been heard of since they were last started, or for long."""
        health = self.api.health()
        if health.get("metadatabase", {}).get("status") != "healthy":
            return [self.processes["api-server"]]
        return [
            self.processes[name]
            for name in _COMPONENTS
            if not _is_alive(health, name.replace("-", "_"), self.processes[name].started_at)
        ]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _new_guardian(self) -> Guardian:
        with (self.home / "in-use").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackError(
                    f"Another Airflow runs in {self.home}, or is just being stopped. Stop it, or wait."
                ) from None
            return Guardian(lock.fileno())

    def _new_process(
        self, name: str, command: list[str], guardian: Guardian, environment: Mapping[str, str] | None = None
    ) -> Process:
        log = self.logs / f"{name}.log"
        log.unlink(missing_ok=True)
        surroundings = self._environment | self._machine(name) | dict(environment or {})
        if name == "api-server":  # tests turn it on for the kickoffs of single tasks
            surroundings["AIRFLOW__CREW__SETTLE_KICKOFFS"] = "True"
        return Process(name, [sys.executable, "-m", *command], surroundings, log, guardian)

    def _command(self, name: str) -> list[str]:
        return self._commands[component_of(name)]

    def _machine(self, _name: str) -> dict[str, str]:
        """Return what the machine of a process sets besides."""
        return {}

    def _migrate(self, guardian: Guardian) -> None:
        """Bring the database to this version of Airflow, unless the last run left word that it is there."""
        marker = self.home / "database-version"
        wanted = version("apache-airflow")
        if (self.home / "airflow.db").exists() and marker.exists() and marker.read_text() == wanted:
            return
        self._run("db-migrate", ["airflow", "db", "migrate"], guardian)
        marker.write_text(wanted)

    def _run(self, name: str, command: list[str], guardian: Guardian) -> None:
        process = self._new_process(name, command, guardian)
        self._awaited = [process]
        process.start()
        try:
            while process.running:
                time.sleep(_PAUSE)
        finally:
            process.stop()
        if process.exit_code:
            raise StackError(_obituary(process))


def _name(component: str, number: int) -> str:
    return component if number == 0 else f"{component}-{number + 1}"


def component_of(name: str) -> str:
    """Return what a process is one of."""
    return re.sub(r"-\d+$", "", name)


def _is_alive(health: Health, component: str, since: float) -> bool:
    """Tell whether a component was heard of since; a killed one is still healthy for as long as its threshold."""
    said = health[component]
    return said["status"] == "healthy" and seconds_since_epoch(said[f"latest_{component}_heartbeat"]) > since


def _obituary(process: Process) -> str:
    return f"Airflow's {process.name} ended with {process.exit_code}.\n{_last_words(process)}"


def _last_words(process: Process) -> str:
    return f"\nThe end of {process.log}:\n{process.tail()}"
