"""Airflow's REST API, as far as the demo and the tests need it."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Health = dict[str, dict[str, str | None]]

_PAUSE = 1.0
_PAGE = 100
# The first task that runs makes the API server build another API, and answer nobody for a while.
_REQUEST_TIMEOUT = 120.0
_DISCARDS_TASK_STATE = (3, 4)


class ApiError(Exception):
    """Airflow refused a request, or something did not come about in time. The message says all that is known."""


class AirflowApi:
    """
    The REST API of one Airflow that lets everybody in as admin.

    get, post, patch and delete take a path below that of the API and return the parsed answer.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()
        # Neither a proxy nor a .netrc has a say about this machine.
        self._session.trust_env = False
        # OpenLineage forks the API server, and a connection that it closes later stays open in the other process,
        # where nobody reads it.
        self._session.headers["Connection"] = "close"

    def get(self, path: str, **parameters: Any) -> Any:
        """Read."""
        return self._call("GET", path, params=parameters)

    def get_from_provider(self, path: str) -> Any:
        """Return what a provider serves beside the API."""
        return self._answer("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """Create, or make something happen."""
        return self._call("POST", path, json=body)

    def patch(self, path: str, body: Any) -> Any:
        """Change."""
        return self._call("PATCH", path, json=body)

    def delete(self, path: str) -> None:
        """Delete."""
        self._call("DELETE", path)

    def health(self) -> Health:
        """Return what Airflow says of its components, or nothing while it does not answer."""
        try:
            answer = self._session.get(f"{self._url}/api/v2/monitor/health", timeout=5)
            health: Health = answer.json() if answer.ok else {}
        except requests.RequestException:
            return {}
        return health

    def jobs(self) -> list[dict[str, Any]]:
        """Return the schedulers, triggerers and DAG processors that are alive, those heard of last at the end."""
        jobs: list[dict[str, Any]] = self.get("jobs", is_alive=True)["jobs"]
        return sorted(jobs, key=lambda job: seconds_since_epoch(job["latest_heartbeat"]))

    def set_connection(self, connection_id: str, fields: Mapping[str, Any]) -> None:
        """Create a connection, or change the one there is, which whoever reads it never finds missing."""
        body = {"connection_id": connection_id, **fields}
        try:
            self.patch(f"connections/{quote(connection_id, safe='')}", body)
        except ApiError as error:
            if ": 404 " not in str(error):
                raise
            self.post("connections", body)

    def ensure_pool(self, name: str, slots: int) -> None:
        """Create a pool that counts deferred tasks, if there is none of that name."""
        if all(pool["name"] != name for pool in self.get("pools")["pools"]):
            pool = {"name": name, "slots": slots, "include_deferred": True, "description": "Concurrent crews"}
            self.post("pools", pool)

    def wait_for_dag(self, dag_id: str, *, parsed_after: float = 0, timeout: float = 240) -> None:
        """Wait until the DAG was parsed, after a point in time if that matters."""

        def parsed() -> bool:
            return any(
                dag["dag_id"] == dag_id and seconds_since_epoch(dag["last_parsed_time"]) > parsed_after
                for dag in self.parsed_dags(dag_id)
            )

        if not _comes_true(parsed, timeout):
            broken = self.get("importErrors")["import_errors"]
            said = "\n".join(f"{error['filename']}:\n{error['stack_trace']}" for error in broken)
            raise ApiError(
                f"The DAG {dag_id} was not parsed within {timeout:.0f} s. {said or 'No import errors.'}"
            )

    def parsed_dags(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the DAGs whose ids hold this, unless their file is gone."""
        dags: list[dict[str, Any]] = self.get("dags", dag_id_pattern=dag_id, exclude_stale=True)["dags"]
        return dags

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a DAG run and return its id."""
        run = self.post(f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(conf or {})})
        return str(run["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a DAG run."""
        return str(self.get(path_of_run(dag_id, run_id))["state"])

    def wait_for(self, dag_id: str, run_id: str, timeout: float) -> str:
        """Wait until a DAG run is over and return its state."""

        def over() -> bool:
            return self.run_state(dag_id, run_id) in {"success", "failed"}

        if not _comes_true(over, timeout):
            states = {task["task_id"]: task["state"] for task in self.task_instances(dag_id, run_id)}
            raise ApiError(f"The run {run_id} of {dag_id} was not over after {timeout:.0f} s. Its tasks: {states}")
        return self.run_state(dag_id, run_id)

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a DAG run, mapped ones each."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.get(f"{path_of_run(dag_id, run_id)}/taskInstances", limit=_PAGE, offset=len(found))
            found += page["task_instances"]
            if not page["task_instances"] or len(found) >= page["total_entries"]:
                return found

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return what a task pushed, deserialised."""
        path = f"{path_of_run(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.get(path, map_index=map_index, deserialize=True, stringify=False)["value"]

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1
    ) -> list[dict[str, Any]]:
        """Return a task's log as it is served: each line is an ``event``, often with ``level`` and more."""
        path = f"{path_of_run(dag_id, run_id)}/taskInstances/{task_id}/logs/{try_number}"
        events: list[dict[str, Any]] = self.get(path, map_index=map_index, full_content=True)["content"]
        return events

    def links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        """Return the links of a task, by their names."""
        path = f"{path_of_run(dag_id, run_id)}/taskInstances/{task_id}/links"
        links: dict[str, str | None] = self.get(path)["extra_links"]
        return links

    def asset_events(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the events of assets that tasks of a DAG have caused."""
        events: list[dict[str, Any]] = self.get("assets/events", source_dag_id=dag_id)["asset_events"]
        return events

    def clear(self, dag_id: str, run_id: str, task_id: str, *, keep_task_state: bool = False) -> None:
        """
        Clear a task, so that it runs again.

        Airflow 3.4 discards what the task has in its store, unless told to keep it. Before, it is always kept.
        """
        body: dict[str, Any] = {"dag_run_id": run_id, "task_ids": [task_id], "only_failed": False}
        body |= {"dry_run": False, "reset_dag_runs": True}
        if keep_task_state and self.version() >= _DISCARDS_TASK_STATE:
            body["keep_task_state"] = True
        self.post(f"dags/{dag_id}/clearTaskInstances", body)

    def version(self) -> tuple[int, int]:
        """Return the version of Airflow, without its patch."""
        major, minor, *_ = self.get("version")["version"].split(".")
        return int(major), int(minor)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        return self._answer(method, f"api/v2/{path}", **options)

    def _answer(self, method: str, path: str, **options: Any) -> Any:
        if "Authorization" not in self._session.headers:
            token = self._send("GET", "auth/token").json()["access_token"]
            self._session.headers["Authorization"] = f"Bearer {token}"
        answer = self._send(method, path, **options)
        return answer.json() if answer.content else None

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            answer = self._session.request(method, f"{self._url}/{path}", timeout=_REQUEST_TIMEOUT, **options)
        except requests.RequestException as error:
            raise ApiError(f"{method} /{path}: {error}") from error
        if not answer.ok:
            raise ApiError(f"{method} /{path}: {answer.status_code} {answer.text}")
        return answer


def path_of_run(dag_id: str, run_id: str) -> str:
    """Return the path of a DAG run in the API."""
    return f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"


def _comes_true(condition: Callable[[], bool], timeout: float) -> bool:
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE)
    return True


def seconds_since_epoch(timestamp: str | None) -> float:
    """Read a time as Airflow writes it; 0 for none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
