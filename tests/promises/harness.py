"""
A task of any kind, attempt after attempt, in processes that may be told to end, killed, or marked.

Everything here is Airflow's side of a task: its processes, its database, its triggerer, and what users do to it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import requests
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated
from airflow.sdk.execution_time.context import set_current_context
from airflow.sdk.execution_time.timeout import timeout as alarm

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.record import ReceivedRequest
from tests.integration.question_receiver import SECRET, Questions, receiving
from tests.integration.tasks import (
    CONNECTION,
    TASK_STATES,
    Log,
    TaskInstance,
    TaskStateStore,
    WatchedService,
    fired,
    rebuilt,
)

# What the triggerer passes to the task of a trigger that a user has ended.
_USER_ACTION = "User action"
# Seconds that a thread of the crew waits for the task's process. It never takes that long.
_PATIENCE = 60.0


class Killed(SystemExit):
    """The process is killed here. An event loop lets nothing else pass from anywhere."""


class Marked(Exception):
    """A user has marked the task while it was deferred, so nothing resumes it."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt has ended: with a value, or with an error."""

    value: Any = None
    error: BaseException | None = None

    @property
    def cost(self) -> str | None:
        """What the error says of the cost. An agent may call another tool after an error without a cost."""
        return getattr(self.error, "cost", "none")

    @property
    def is_retried(self) -> bool:
        """Whether Airflow retries the task."""
        final = (AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated, Marked)
        return self.error is not None and not isinstance(self.error, final)


class World:
    """A crew, and an Airflow with one run of a DAG."""

    def __init__(self, crew: WatchedService, log: Log, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crew = crew
        self.log = log
        self._folders = (folder / f"{number}" for number in count())
        self.states: dict[str, str] = {}
        self.xcoms: dict[str, dict[str, Any]] = {}
        self.stored: list[str] = []
        """Everything that Airflow's database has ever held of tasks, triggers and XComs, as JSON."""
        self._monkeypatch = monkeypatch
        self._clocks: list[Callable[[ReceivedRequest], None]] = []
        self._listeners: list[Callable[[ReceivedRequest], None]] = []
        crew.after = self._tell
        monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom.set", staticmethod(self.push))
        monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom.get_one", staticmethod(self._pull))
        monkeypatch.setattr(TASK_STATES, staticmethod(self._states_of))

    def new_folder(self) -> Path:
        """Return a folder for results that nothing else uses."""
        return next(self._folders)

    def connect(self, crew: LocalCrewService | None = None, **extra: Any) -> None:
        """Write the connection to the crew, or to another one, with the token that is valid now."""
        known = json.loads((crew or self.crew).connection_json)
        self._monkeypatch.setenv(CONNECTION, json.dumps(known | {"extra": extra}))

    def webhooks(self) -> dict[str, Any]:
        """Return the options of webhooks that are called with the secret of a connection."""
        secret = {"conn_type": "generic", "login": "crew", "password": SECRET}
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
        clock, passed = time.time, count()
        polls = [0]

        def took(request: ReceivedRequest) -> None:
            if request.operation == "status":
                polls[0] = next(passed) + 1

        self._clocks.append(took)
        self._monkeypatch.setattr(time, "time", lambda: clock() + polls[0] * seconds)

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

    @property
    def kickoff_ids(self) -> list[str]:
        """Every execution that was started."""
        return [kickoff.kickoff_id for kickoff in self.crew.kickoffs]

    @property
    def stopped_ids(self) -> list[str]:
        """The execution of each request to stop one."""
        return [request.path.rpartition("/")[2] for request in self.crew.requests.on("stop")]

    def push(self, key: str, value: Any, *, task_id: str, **_: Any) -> None:
        """Store an XCom."""
        text = json.dumps(value, allow_nan=False)
        self.stored.append(f"{key} {text}")
        self.xcoms.setdefault(task_id, {})[key] = json.loads(text)

    def _pull(self, *, key: str, task_id: str, **_: Any) -> Any:
        return self.xcoms.get(task_id, {}).get(key)

    def _states_of(self, *, run_ids: list[str], task_ids: Sequence[str] = (), **_: Any) -> dict[str, Any]:
        return {run_ids[0]: {task_id: self.states[task_id] for task_id in task_ids or self.states}}

    def _tell(self, request: ReceivedRequest) -> None:
        for listener in (*self._clocks, *self._listeners):
            listener(request)


class Instance(TaskInstance):
    """A task instance whose XComs are in the database of the world."""

    world: World

    def xcom_push(self, key: str, value: Any) -> None:
        self.world.push(key, value, task_id=self.task_id)

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int) -> Any:
        assert map_indexes == self.map_index
        return self.world.xcoms.get(task_ids, {}).get(key)


class Store(TaskStateStore):
    """The task state store, whose answers a test may hold up. All that it was given counts as stored."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        super().set(key, value, retention=retention)
        self._world.stored.append(self._kept[key])

    def for_process(self, process: Process) -> Any:
        """Return the store as one process sees it. A killed process reaches it no more."""

        def call(name: str) -> Callable[..., Any]:
            def ask(*given: Any, **named: Any) -> Any:
                if process.is_dead:
                    raise Killed
                return getattr(self, name)(*given, **named)

            return ask

        return SimpleNamespace(**{name: call(name) for name in ("get", "set", "delete")})


class Process:
    """One process of a task: a worker's, which gets signals."""

    def __init__(self) -> None:
        self.is_dead = False
        self._told = threading.Event()
        self._rung = threading.Event()

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Limit the time as Airflow does."""
        with alarm(seconds) as limit:

            def ring(*given: Any) -> None:
                self._rung.set()
                limit.handle_timeout(*given)

            signal.signal(signal.SIGALRM, ring)
            yield

    @contextmanager
    def of(self, operator: Any) -> Iterator[None]:
        """Handle signals as Airflow does: SIGTERM calls on_kill, and the process goes on until it is killed."""

        def told(*_: object) -> None:
            self._told.set()
            operator.on_kill()

        def killed(*_: object) -> None:
            self.is_dead = True
            raise Killed

        before = [
            (number, signal.signal(number, act)) for number, act in ((signal.SIGTERM, told), (_KILL, killed))
        ]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def tell(self) -> None:
        """Send SIGTERM, and return as soon as the handler runs. Call this from another thread."""
        self._send(signal.SIGTERM, self._told.is_set)

    def kill(self) -> None:
        """Kill the process. Call this from another thread."""
        self._send(_KILL, lambda: self.is_dead)

    def ring(self) -> None:
        """Let execution_timeout pass. Call this from another thread."""
        self._send(signal.SIGALRM, self._rung.is_set)

    @staticmethod
    def _send(number: int, has_arrived: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while not has_arrived() and time.monotonic() < until:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            time.sleep(0.01)


_KILL = signal.SIGUSR1


def _executed(operator: Any, context: Any) -> Any:
    return operator.execute(context)


class Task:
    """One task, attempt after attempt. ``make`` builds its operator, once for each process."""

    def __init__(self, world: World, make: Callable[[], Any], *, task_id: str = "crew", retries: int = 2) -> None:
        self.world = world
        self.make = make
        self.store = Store(world)
        self.ti = Instance(try_number=0, max_tries=retries, task_id=task_id)
        self.ti.world = world
        self.deferral: dict[str, Any] = {}
        """Trigger, arguments of the next process, and the event, as Airflow's database has them."""
        self._retries = retries
        self._process: Process | None = None
        self._to_end = threading.Event()

    def attempt(self) -> Outcome:
        """Run the next attempt to its end, in as many processes as it takes."""
        self.ti.try_number += 1
        self.ti.id = uuid4()
        self.ti.start_date = datetime.now(UTC)
        self.ti.first_poke = None
        left = self.world.xcoms.pop(self.ti.task_id, {})
        self.ti._ti_context_from_server = SimpleNamespace(task_reschedule_count=0, xcom_keys_to_clear=[*left])
        return self._outcome(lambda: _executed)

    def resume(self, deferral: dict[str, Any]) -> Outcome:
        """Continue an attempt that was deferred, with its event if there is one."""
        return self._outcome(lambda: self._resumed_by(deferral))

    def _outcome(self, first: Callable[[], Callable[[Any, Any], Any]]) -> Outcome:
        try:
            return Outcome(self._run(first()))
        except BaseException as error:  # noqa: BLE001 - the outcome
            self._state = "failed" if isinstance(error, Marked) else "up_for_retry"
            self.world.stored.append("".join(traceback.format_exception(error)) + repr(vars(error)))
            return Outcome(error=error)

    def clear(self) -> None:
        """Clear the task, as a user does."""
        self.ti.max_tries = self.ti.try_number + self._retries

    def tell_to_end(self) -> None:
        """Shut down the worker, or hand the trigger over to another triggerer. Call this from another thread."""
        if self._process:
            self._process.tell()
        else:
            self._to_end.set()

    def mark(self) -> None:
        """Mark the task as failed, as a user does. Call this from another thread."""
        self._state = "failed"
        self.tell_to_end()

    def ring(self) -> None:
        """Let execution_timeout pass. Call this from another thread."""
        if self._process:
            self._process.ring()

    def kill(self) -> None:
        """Kill the process of the task. A triggerer goes on. Call this from another thread."""
        if self._process:
            self._process.kill()

    @property
    def _state(self) -> str:
        return self.world.states[self.ti.task_id]

    @_state.setter
    def _state(self, state: str) -> None:
        self.world.states[self.ti.task_id] = state

    def _run(self, step: Callable[[Any, Any], Any]) -> Any:
        while True:
            self._state = "running"
            try:
                return self._in_worker(step)
            except TaskDeferred as deferred:
                step = self._resumed_by(self._stored(deferred))
            except AirflowRescheduleException as later:
                self.ti.first_poke = self.ti.start_date
                step = self._poked_at(later.reschedule_date)

    def _poked_at(self, moment: datetime) -> Callable[[Any, Any], Any]:
        """Wait outside of a worker, and return the next poke."""
        self._state = "up_for_reschedule"
        while datetime.now(UTC) < moment:
            time.sleep(0.01)
            if self._state != "up_for_reschedule":
                raise Marked
        return _executed

    def _in_worker(self, step: Callable[[Any, Any], Any]) -> Any:
        operator, process = self.make(), Process()
        context: Any = {
            "ti": self.ti,
            "task": operator,
            "dag_run": SimpleNamespace(clear_number=0),
            "task_state_store": self.store.for_process(process),
        }
        limit = operator.execution_timeout
        with ExitStack() as stack:
            stack.enter_context(process.of(operator))
            stack.enter_context(set_current_context(context))
            self._process = process
            stack.callback(setattr, self, "_process", None)
            operator.render_template_fields(context)
            with process.limited(limit.total_seconds()) if limit else ExitStack():
                result = step(operator, context)
            operator.post_execute(context, result)
            self._state = "success"
            for callback in operator.on_success_callback:
                callback(context)
            return json.loads(json.dumps(result, default=vars))

    def _stored(self, deferred: TaskDeferred) -> dict[str, Any]:
        """Return a deferral as Airflow's database returns it."""
        left = {"method": deferred.method_name, "kwargs": deferred.kwargs or {}}
        text = json.dumps({"trigger": deferred.trigger.serialize(), **left}, allow_nan=False)
        self.world.stored.append(text)
        self.deferral = json.loads(text)
        return self.deferral

    def _resumed_by(self, deferral: dict[str, Any]) -> Callable[[Any, Any], Any]:
        """Run the trigger, unless it has fired, and return the next step of the task."""
        self._state = "deferred"
        event = deferral.get("event")
        try:
            while event is None:
                event = asyncio.run(self._event_of(*deferral["trigger"]))
        except Marked:
            raise
        except Exception as error:  # noqa: BLE001 - Airflow resumes the task, which may fail then
            told = {"error": "Trigger failure", "traceback": traceback.format_exception(error)}
            return lambda operator, context: operator.resume_execution("__fail__", told, context)
        text = json.dumps(event, allow_nan=False)
        self.world.stored.append(text)
        deferral["event"] = json.loads(text)
        told = {**deferral["kwargs"], "event": json.loads(text)}
        return lambda operator, context: operator.resume_execution(deferral["method"], told, context)

    async def _event_of(self, path: str, stored: dict[str, Any]) -> dict[str, Any] | None:
        """Return the event of a trigger. None if it is handed over to another triggerer."""
        trigger: Any = rebuilt(path, stored)
        trigger.task_instance = self.ti
        self._to_end.clear()
        running = asyncio.create_task(fired(trigger))
        while not (await asyncio.wait({running}, timeout=0.02))[0]:
            if self._to_end.is_set():
                running.cancel(_USER_ACTION)
                with_message = (await asyncio.gather(running, return_exceptions=True))[0]
                if getattr(with_message, "args", ()):
                    await trigger.on_kill()
                if self._state != "deferred":
                    raise Marked
                return None
        return running.result()
