"""
What differs in an Airflow 2 of the kind of ``stack.py``: its processes, its settings and its REST API.

It has a web server in place of the API server, which reads logs from the folder that all share, parses DAGs in its
scheduler, and runs several tasks at a time only with another database than SQLite.
"""

from __future__ import annotations

import ast
import re
from itertools import dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING, Any

from dev.loopback import HOST
from dev.rest import AirflowApi

if TYPE_CHECKING:
    from collections.abc import Mapping

USER = "admin"
_LINE = re.compile(r"^\[[^\]]+\] \{[^}]*\} (?P<level>[A-Z]+) - (?P<event>.*)$")
_CSRF_TOKEN = re.compile(r'name="csrf_token"[^>]* value="([^"]+)"')
_TRACEBACK = "Traceback (most recent call last):"
_FAILURE = re.compile(r"(?:\w+\.)*(?P<exc_type>[A-Z]\w+): (?P<exc_value>.*)", re.DOTALL)

COMMANDS = {
    "api-server": ["airflow", "webserver", "--workers", "1"],
    "scheduler": ["airflow", "scheduler", "--skip-serve-logs"],
    "triggerer": ["airflow", "triggerer", "--skip-serve-logs"],
}
COMPONENTS = ("scheduler", "triggerer")
ADD_USER = ["airflow", "users", "create", "--role", "Admin", "--username", USER, "--password", USER]
ADD_USER += ["--firstname", "A", "--lastname", "B", "--email", "admin@airflow.example"]


def settings(port: int) -> dict[str, Mapping[str, str]]:
    """Return the settings that Airflow 3 does not have."""
    return {
        # The first is the one that Airflow comes with, which its own pages use.
        "api": {"auth_backends": "airflow.api.auth.backend.session,airflow.api.auth.backend.basic_auth"},
        "webserver": {
            "web_server_host": HOST,
            "web_server_port": str(port),
            "base_url": f"http://{HOST}:{port}",
            "secret_key": "for this machine alone",
        },
        "scheduler": {"dag_dir_list_interval": "2", "min_file_process_interval": "2"},
    }


class Airflow2Api(AirflowApi):
    """The REST API of Airflow 2, as far as it is needed, with the answers of Airflow 3."""

    _api = "api/v1"
    _health = "health"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._session.auth = (USER, USER)

    def parsed_dags(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the DAGs whose ids hold this, unless their file is gone."""
        dags: list[dict[str, Any]] = self.get("dags", dag_id_pattern=dag_id, only_active=True)["dags"]
        return dags

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a DAG run and return its id."""
        return str(self.post(f"dags/{dag_id}/dagRuns", {"conf": dict(conf or {})})["dag_run_id"])

    def links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        """Return the links of a task, by their names."""
        links: dict[str, str | None] = self.get(f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links")
        return links

    def asset_events(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the events of assets that tasks of a DAG have caused."""
        events: list[dict[str, Any]] = self.get("datasets/events", source_dag_id=dag_id)["dataset_events"]
        return events

    def log_events(
        self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1
    ) -> list[dict[str, Any]]:
        """Return a task's log: each line is an ``event``, and what failed it an ``error_detail``."""
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        told = self.get(path, map_index=map_index, full_content=True)["content"]
        text = "\n".join(said for _, said in ast.literal_eval(told)) if told else ""
        return [*_events(text), *_failures(text)]

    def form_fields(self, connection_type: str) -> set[str]:
        """Return the fields of ``extra`` that the connection form shows, which is a page behind the login."""
        (csrf_token,) = _CSRF_TOKEN.findall(self._send("GET", "login/").text)
        self._send("POST", "login/", data={"username": USER, "password": USER, "csrf_token": csrf_token})
        form = self._send("GET", "connection/add").text
        return set(re.findall(rf'name="extra__{connection_type}__(\w+)"', form))

    def _answer(self, method: str, path: str, **options: Any) -> Any:
        options["headers"] = {"Accept": "application/json"}
        answer = self._send(method, path, **options)
        return answer.json() if answer.content else None


def _events(text: str) -> list[dict[str, Any]]:
    events = [
        {"level": found["level"].lower(), "event": found["event"]}
        for line in text.splitlines()
        if (found := _LINE.match(line))
    ]
    for reason, end in pairwise(events):
        if end["event"].startswith("Marking task as SKIPPED"):
            reason |= {"event": "Skipping task.", "reason": reason["event"]}
    return events


def _failures(text: str) -> list[dict[str, Any]]:
    """Return the exception of the last traceback. Its message may have several lines."""
    _, traceback, told = text.rpartition(_TRACEBACK)
    lines = takewhile(lambda line: not _LINE.match(line), told.splitlines()[1:])
    message = "\n".join(dropwhile(lambda line: line.startswith(" "), lines))
    found = _FAILURE.match(message) if traceback else None
    return [{"event": "Task failed", "error_detail": [found.groupdict()]}] if found else []
