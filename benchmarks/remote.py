"""A service over TLS whose work takes a while, for clients of a crew, of dbt Cloud, and of an API of one's own."""

from __future__ import annotations

import itertools
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from dev.loopback import HOST

if TYPE_CHECKING:
    from types import TracebackType

    import trustme

_TASKS = ("research_task", "writing_task", "editing_task")
_USAGE = {"total_tokens": 3410, "prompt_tokens": 2900, "completion_tokens": 510, "successful_requests": 4}
_OUTPUT = "Electric ferries need berths that charge within a turnaround of twenty minutes. " * 12
# As dbt Cloud numbers them.
_RUNNING, _SUCCESS = 3, 10


class RemoteService:
    """
    The service, in threads. Whatever is started takes ``seconds``.

    It speaks as a deployed crew does, as dbt Cloud does, and as HttpSensor wants it: 404 until it is done.
    """

    def __init__(self, authority: trustme.CA, seconds: float) -> None:
        self._seconds = seconds
        self._began: dict[str, float] = {}
        self._numbers = itertools.count(1)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(HOST).configure_cert(context)
        handler = type("Handler", (_Handler,), {"service": self})
        self._server = _Server((HOST, 0), handler)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.address = f"{HOST}:{self._server.server_port}"

    def ends(self) -> list[float]:
        """Return the ends of all that was started since the last call, in seconds since the epoch."""
        began, self._began = self._began, {}
        return [at + self._seconds for at in began.values()]

    def start(self) -> str:
        """Start something, and return its id."""
        number = str(next(self._numbers))
        self._began[number] = time.time()
        return number

    def done(self, number: str) -> float:
        """Return what share of it is done."""
        return min((time.time() - self._began[number]) / self._seconds, 1.0)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    # All lanes come at once.
    request_queue_size = 128
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: RemoteService

    def do_GET(self) -> None:
        """Tell which inputs there are, or how something is doing."""
        kind, _, number = urlsplit(self.path).path.strip("/").rpartition("/")
        if number == "inputs":
            self._answer({"inputs": ["topic"]})
            return
        done = self.service.done(number)
        if kind == "results":
            self._answer(*(({"output": _OUTPUT}, 200) if done == 1 else ({"error": "not yet"}, 404)))
        else:
            self._answer(_crew(done) if kind == "status" else _dbt(number, done))

    def do_POST(self) -> None:
        """Start something."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        number = self.service.start()
        self._answer(_dbt(number, 0.0) if self.path.startswith("/api/") else {"kickoff_id": number})

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, told: object, status: int = 200) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _crew(done: float) -> dict[str, Any]:
    if done == 1:
        return {"state": "SUCCESS", "status": None, "result": _OUTPUT, "usage_metrics": _USAGE}
    number = int(done * len(_TASKS))
    count = {"unit": "task", "completed": number, "total": len(_TASKS), "current": _TASKS[number]}
    return {"state": "RUNNING", "status": "Task is Running", "progress": count}


def _dbt(number: str, done: float) -> dict[str, Any]:
    status = _SUCCESS if done == 1 else _RUNNING
    return {
        "status": {"code": 200, "is_success": True},
        "data": {"id": int(number), "status": status, "href": f"https://cloud.example/runs/{number}"},
    }
