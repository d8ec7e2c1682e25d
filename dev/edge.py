"""An Airflow whose workers reach it over HTTP alone, as the edge executor's do."""

from __future__ import annotations

import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dev.rest import ApiError
from dev.settings import variables
from dev.stack import AirflowStack, component_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dev.processes import Process

_AT_WORK = {"idle", "running", "starting"}


class EdgeStack(AirflowStack):
    """
    An Airflow with two edge workers, each with a home of its own, and without any way to the database.

    ``environment`` has to name the database of all others.
    """

    _numbers: ClassVar[Mapping[str, int]] = MappingProxyType({"worker": 2})

    def __init__(
        self, home: Path, dags_folder: Path, environment: Mapping[str, str], port: int | None = None
    ) -> None:
        super().__init__(home, dags_folder, environment, port)
        self._environment |= variables(
            {
                "core": {"executor": "airflow.providers.edge3.executors.EdgeExecutor"},
                "api_auth": {"jwt_secret": secrets.token_hex()},
                "edge": {
                    "api_enabled": "True",
                    "api_url": f"{self.url}/edge_worker/v1/rpcapi",
                    "job_poll_interval": "1",
                    # A worker that was killed may not come back under its name before it is missed.
                    "heartbeat_interval": "2",
                    "worker_concurrency": "16",
                },
            }
        )
        self._commands["worker"] = ["airflow", "edge", "worker"]

    @property
    def executors(self) -> list[Process]:
        """Return the processes whose children supervise the tasks."""
        return self.all_of("worker")

    def ill(self) -> list[Process]:
        """Return the processes that have not been heard of since they were last started, or for long."""
        return super().ill() or self._silent_workers()

    def _silent_workers(self) -> list[Process]:
        try:
            workers: list[dict[str, Any]] = self.api.get_from_provider("edge_worker/ui/worker")["workers"]
        except ApiError:
            return self.all_of("worker")
        at_work = {worker["worker_name"] for worker in workers if worker["state"] in _AT_WORK}
        return [process for process in self.all_of("worker") if process.name not in at_work]

    def _command(self, name: str) -> list[str]:
        command = super()._command(name)
        return [*command, "--edge-hostname", name] if component_of(name) == "worker" else command

    def _machine(self, name: str) -> dict[str, str]:
        if component_of(name) != "worker":
            return {}
        home = self.home / name
        home.mkdir(parents=True, exist_ok=True)
        no_database = variables({"database": {"sql_alchemy_conn": f"sqlite:///{home}/none/airflow.db"}})
        return {"AIRFLOW_HOME": str(home)} | no_database
