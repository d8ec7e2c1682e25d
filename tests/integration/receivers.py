"""A chat, and the program of a page that forwards webhooks to it."""

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

from dev.loopback import free_port, is_free
from tests.airflow_runs import eventually
from tests.integration.pages import RECEIVER, anywhere


@contextmanager
def chat() -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Take the messages that a chat gets, and return them with the address."""
    told: list[dict[str, Any]] = []

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Chat) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield told, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def receiver(**environment: str) -> Iterator[str]:
    """Run the program that the page shows, and return its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", anywhere("python", RECEIVER)], env=os.environ | environment | {"PORT": str(port)}
    )
    try:
        eventually(lambda: not is_free(port))
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()
