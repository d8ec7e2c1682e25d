"""Receivers of requests, a chat, and the example that forwards webhooks to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from dev.loopback import HOST, free_port, is_free
from tests.airflow_runs import eventually
from tests.integration.pages import ROOT


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve requests without a log, and yield the address without a slash."""
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer((HOST, 0), quiet) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def chat() -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Take the messages that a chat gets, and return them with the address."""
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    with serving(Handler) as address:
        yield told, f"{address}/"


@contextmanager
def receiver(**environment: str) -> Iterator[str]:
    """Run the example, and return its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, ROOT / "example_crews/webhook_receiver.py"],
        env=os.environ | environment | {"PORT": str(port)},
    )
    try:
        eventually(lambda: not is_free(port))
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()
