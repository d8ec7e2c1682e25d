"""The receiver of human input webhooks, on a real socket. The XComs of one task are its database."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, cast
from unittest.mock import patch

import requests
import uvicorn
from fastapi import Request, Response
from starlette.applications import Starlette
from starlette.routing import Mount

from airflow_provider_crew.answers import receiver
from airflow_provider_crew.answers.question import QUESTION, Call
from airflow_provider_crew.settle import receiver as calls
from tests.airflow_runs import eventually

SECRET = "webhook-secret-4711"
TOKEN = "crew-token+4711"
_numbers = count(1)


class Questions:
    """A receiver, and the XComs and task states that it changes."""

    def __init__(self, task: Mapping[str, Any], xcoms: dict[str, Any]) -> None:
        self.task = task
        self.url = ""
        self.reset(xcoms)

    def reset(self, xcoms: dict[str, Any]) -> None:
        """Forget everything, and read the secret again."""
        self.xcoms = xcoms
        self.secret: str | None = SECRET
        self.changes = self.loads = self.deliveries = 0
        self.arrived: set[str] = set()
        """IDs of the questions that the receiver has left for the task."""
        self.entries_of: Callable[[Mapping[str, Any]], dict[str, str]] = lambda _: {}
        """Entries of the task state store of a task, as JSON."""
        self.calls = 0
        """Number of calls of crews that have started."""
        self._receiver = receiver.Receiver()

    async def receive(self, request: Request) -> Response:
        """Pass a delivery to the receiver."""
        self.deliveries += 1
        return await self._receiver.receive(request)

    @contextmanager
    def state(self, task: Mapping[str, Any]) -> Iterator[calls.State]:
        """Yield the entries of a task, as Airflow's database does."""
        entries = self.entries_of(task)
        yield entries.get, entries.__setitem__

    async def known_secret(self) -> str | None:
        """Return the secret for a call of a crew that has started, and count the call."""
        self.calls += 1
        return await self._receiver.known_secret()

    def load(self, conn_id: str) -> str:
        assert conn_id == "crew_webhook"
        self.loads += 1
        if self.secret is None:
            raise RuntimeError("the secrets backend is away")
        return self.secret

    def take(self, call: Call) -> None:
        found = copy.deepcopy(self.xcoms.get(QUESTION)) if call.task == self.task else None
        if (value := call.added_to(found)) is not None:
            self.xcoms[QUESTION] = json.loads(json.dumps(value))
            self.changes += 1
            self.arrived.add(value["question"]["task_id"])

    def deliver(self, body: Any, **headers: str | None) -> requests.Response:
        """Deliver a webhook."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        for name in (name for name, value in headers.items() if value is None):
            sent.pop(name.replace("_", "-"), None)
        return requests.post(self.url, data=data, headers=sent, timeout=30, allow_redirects=False)


@cache
def _server() -> tuple[Starlette, str]:
    """Start the one server of this process. Return what it serves, and its address."""
    served = Starlette()
    config = uvicorn.Config(served, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    eventually(lambda: server.started, pause=0.01)
    return served, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


@contextmanager
def receiving(task: Mapping[str, Any], xcoms: dict[str, Any]) -> Iterator[Questions]:
    """Run a receiver for one task, at an address of its own."""
    questions = Questions(task, xcoms)
    served, address = _server()
    with (
        patch.dict("os.environ", {"AIRFLOW__CREW__WEBHOOK_CONN_ID": "crew_webhook"}),
        patch.object(calls, "task_state", questions.state),
        patch.object(receiver, "token_for", lambda _: TOKEN),
        patch.object(receiver, "load_secret", lambda conn_id: questions.load(conn_id)),  # noqa: PLW0108 - replaced
        patch.object(receiver, "deliver", questions.take),
    ):
        application = receiver.app(own := cast("receiver.Receiver", questions))
        calls.add_route(application, own)
        mounted = Mount(f"/{next(_numbers)}", application)
        questions.url = f"{address}{mounted.path}/events"
        served.routes.append(mounted)
        try:
            yield questions
        finally:
            served.routes.remove(mounted)
