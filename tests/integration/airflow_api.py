"""The part of Airflow's REST API that the commands use, on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.integration import receivers

TASK = {"dag_id": "crew_report", "task_id": "report", "map_index": -1, "state": "failed"}
TASK |= {"try_number": 2, "max_tries": 0}


class AirflowApi:
    """Task instances and kickoff records. ``stored`` has the bodies of records by the path of their request."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.tasks = [dict(TASK)]
        self.stored: dict[str, Any] = {}
        self.answer: Callable[[str], tuple[int, bytes] | None] = lambda _: None
        """Returns a status and a body for a path, or None for the true answer."""
        self.tokens: set[str | None] = set()
        self.changes: list[str] = []
        self.url = ""

    def respond(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and the body of a response."""
        parts = urlsplit(path)
        *_, last = parts.path.split("/")
        if last == "version":
            return 200, {"version": self.version}
        if "/state-store/" not in path:
            found = [task for task in self.tasks if str(task["map_index"]) == last]
            return (200, found[0]) if found else (404, {"detail": "The Mapped Task Instance was not found"})
        if method != "GET":
            self.changes.append(method)
        if method == "PUT":
            self.stored[unquote(path)] = body
            return 200, None
        if method == "DELETE":
            return 204, self.stored.pop(unquote(path), None) and None
        record = self.stored.get(unquote(path))
        return (200, record) if record else (404, {"detail": "not found"})


@contextmanager
def serving(version: str) -> Iterator[AirflowApi]:
    """Serve the API of this version of Airflow."""
    api = AirflowApi(version)

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            api.tokens.add(self.headers["Authorization"])
            told = api.answer(self.path)
            if told is None:
                status, answer = api.respond(self.command, self.path, json.loads(body) if body else None)
                told = status, b"" if answer is None else json.dumps(answer).encode()
            self.send_response(told[0])
            self.send_header("Content-Length", str(len(told[1])))
            if 300 <= told[0] < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(told[1])

        do_GET = do_PUT = do_PATCH = do_DELETE = _respond  # noqa: N815 - names of http.server

    with receivers.serving(Handler) as api.url:
        yield api
