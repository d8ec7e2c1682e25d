"""A world of real time: a crew behind sockets, and processes that get signals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.record import ReceivedRequest
from tests.integration.question_receiver import SECRET, Questions, receiving
from tests.integration.tasks import CONNECTION, Log, WatchedService
from tests.promises.attempts import Task, patch_airflow


class World:
    """A crew, and an Airflow with one run of a DAG."""

    def __init__(self, crew: WatchedService, log: Log, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crew = crew
        self.log = log
        self.tasks: dict[str, Task] = {}
        self._folders = (folder / f"{number}" for number in count())
        self.stored: list[str] = []
        """Everything that Airflow's database has ever held of tasks, triggers and XComs, as JSON."""
        self._monkeypatch = monkeypatch
        self._listeners: list[Callable[[ReceivedRequest], None]] = []
        crew.after = self._tell
        patch_airflow(monkeypatch, lambda task_id: self.tasks[task_id].state, self.tasks.__getitem__)

    def new_folder(self) -> Path:
        """Return a folder for results that nothing else uses."""
        return next(self._folders)

    def connect(self, crew: LocalCrewService | None = None, **extra: Any) -> None:
        """Write the connection to the crew, or to another one, with the token that is valid now."""
        known = json.loads((crew or self.crew).connection_json)
        self._monkeypatch.setenv(CONNECTION, json.dumps(known | {"extra": extra}))

    def webhooks(self) -> dict[str, Any]:
        """Return the options of webhooks that are called with the secret of a connection."""
        secret = {"conn_type": "generic", "password": SECRET}
        self._monkeypatch.setenv("AIRFLOW_CONN_HOOKS", json.dumps(secret))
        webhooks = {"url": "https://hooks.example", "events": ["task_completed"]}
        return {"webhooks": webhooks, "human_input_webhook_url": "https://x.example", "webhook_conn_id": "hooks"}

    def disconnect(self) -> None:
        """Delete the connection."""
        self._monkeypatch.delenv(CONNECTION)

    @contextmanager
    def receiver(self, task: Callable[[], Task], within: float = 60.0) -> Iterator[Questions]:
        """Settle uncertain kickoffs of a task, with a receiver of the calls of its crew."""
        with receiving({}, {}) as running:
            running.entries_of = lambda _: task().store.texts
            secret = {"conn_type": "generic", "password": SECRET}
            self._monkeypatch.setenv("AIRFLOW_CONN_CREW_WEBHOOK", json.dumps(secret))
            settings = {"EVENTS_URL": running.url, "WEBHOOK_CONN_ID": "crew_webhook", "SETTLE_KICKOFFS": "True"}
            for name, value in (settings | {"SETTLE_WITHIN": str(within)}).items():
                self._monkeypatch.setenv(f"AIRFLOW__CREW__{name}", value)
            yield running

    def before_polls(self, act: Callable[[], Any]) -> Callable[[], None]:
        """Do something in the process that polls, before each poll. Return what ends that."""
        acts = [act]

        def with_act(original: Any) -> Any:
            def send(client: Any, request: Any, *given: Any, **named: Any) -> Any:
                if acts and "/status" in str(getattr(request, "url", request)):
                    acts[0]()
                return original(client, request, *given, **named)

            return send

        for kind, name in ((requests.adapters.HTTPAdapter, "send"), (aiohttp.ClientSession, "get")):
            self._monkeypatch.setattr(kind, name, with_act(getattr(kind, name)))
        return acts.clear

    def each_poll_takes(self, seconds: float) -> None:
        """Let deadlines come nearer by some seconds at each poll from now on. The crew has a clock of its own."""
        clock, passed = time.time, [0.0]
        self._listeners.append(lambda request: passed.append(seconds * (request.operation == "status")))
        self._monkeypatch.setattr(time, "time", lambda: clock() + sum(passed))
        self._monkeypatch.setattr(
            "airflow_provider_crew.hooks.polling.SteadyClock.__call__", lambda _: time.time()
        )

    def at(self, operation: str, act: Callable[[], Any], *, number: int = 1, status: int | None = None) -> None:
        """Do something once, before the answer to such a request is sent."""
        numbers = count(1)

        def note(request: ReceivedRequest) -> None:
            is_one = request.operation == operation and status in (None, request.status)
            if is_one and next(numbers) == number:
                act()

        self._listeners.append(note)

    def forget(self) -> None:
        """Do nothing more of what was to be done later."""
        self._listeners.clear()

    def finish(self) -> None:
        """Complete every execution."""
        for kickoff in self.crew.kickoffs:
            self.crew.finish(kickoff.kickoff_id)

    def _tell(self, request: ReceivedRequest) -> None:
        for listener in [*self._listeners]:
            listener(request)
