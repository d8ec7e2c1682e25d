"""
Processes of real tasks, each as a tree: its next request, after each sequence of answers.

The code is real, down to the client's calls. For each new answer, a process is played again from its start.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from airflow_provider_crew.batch.files import FACTS, ResultFiles
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.models import Completed, CrewInputs, Failed, Running
from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.client.watch import WatchRules
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.hooks.connection import load_connection
from airflow_provider_crew.hooks.polling import Poller
from airflow_provider_crew.triggers.watching import hook_of
from tests.integration.batches import one_by_one
from tests.integration.tasks import rebuilt
from tests.promises.attempts import Instance, patch_airflow

NOW = 1_800_000_000.0
ADDRESS = "https://crew.example"
FILE = "file:"
"""Begin of the keys of the files that a batch has stored."""
DAYS = 30 * 86_400.0
SECRET = "secret-of-the-receiver"
TOLD = ("told", "")
"""Answer that is none: Airflow tells the process to end."""
ERRORS: dict[str, Callable[[], BaseException]] = {
    "refused": lambda: RuntimeError("Airflow has refused it."),
    "not written": lambda: CrewTaskError("The file was not written."),
    "lost": lambda: errors.UncertainKickoff("The response is lost."),
    "rejected": lambda: errors.Rejected("422", http_status=422),
    "not found": lambda: errors.ExecutionNotFound("404", address=ADDRESS, cost=errors.Cost.RUNNING),
    "unreadable": lambda: errors.NotAllowed("403"),
    "not stopped": lambda: errors.NotCancelled("405"),
    "silent": lambda: errors.Unreachable("The response is lost.", sent=True),
}
as_json = json.JSONEncoder(sort_keys=True).encode
from_json = cache(json.loads)
"""Reads what nothing changes."""
Answer = tuple[str, Any]
Calm = Callable[[tuple[Any, ...]], Answer | None]
"""Returns the answer to a request if nothing goes wrong, with which a process is played on. None if it is over."""


class Wrong(str):
    """A broken promise, in words that are the same in all its stories."""

    __slots__ = ()


class Start(NamedTuple):
    """Everything that a process knows when it starts."""

    task: str
    try_number: int
    max_tries: int
    left: tuple[str, ...] = ()
    resumes: tuple[str, str] | None = None
    trigger: str = ""
    """A trigger that was told that its task has left it, instead of a task."""
    now: float = NOW


@dataclass(eq=False)
class Process:
    """A process that waits for an answer, or has ended."""

    start: Start
    answers: tuple[Answer, ...]
    request: tuple[Any, ...]
    pushed: tuple[tuple[str, str], ...]
    """XComs that it has pushed since the last answer."""
    has_succeeded: bool


_NO_NEWS = {TOLD, *(("ok", value) for value in (None, 0.0, "null", "running", "restarting", "queued"))}
_processes: dict[Any, Process] = {}
_plays: list[Play] = []
"""The run of a process that is under way."""


def process_after(start: Start, answers: tuple[Answer, ...], calm: Calm) -> Process:
    """Return the process that has got these answers since its start."""
    if (start, answers) not in _processes:
        Play(start, answers, calm)
    return _processes[start, answers]


class Play:
    """One run of a process: through the answers that it has got, and on while nothing goes wrong."""

    def __init__(self, start: Start, answers: tuple[Answer, ...], calm: Calm) -> None:
        self.start, self.clock = start, start.now
        self._answers, self._taken, self._calm = [*answers], 0, calm
        self._found: list[Process] = []
        self._pushed: list[tuple[str, str]] = []
        self._is_over = self.is_told = self._has_succeeded = False
        self._operator: Any = copy.copy(TASKS[start.task].operator())
        _plays[:] = [self]
        random.seed(0)
        with suppress(BaseException):
            (self._trigger if start.trigger else self._task)()
        if not self._is_over:
            self._note("exit")
        self._keep()

    def ask(self, *request: Any) -> Any:
        """Return the next answer to the process, or raise it."""
        while not self._is_over:
            self._has_succeeded |= request[:2] == ("finish", "success")
            if self._taken == len(self._answers):
                self._note(*request)
                if (answer := self._calm(request)) is None:
                    self._is_over = True
                    break
                self._answers.append(answer)
            kind, value = answer = self._answers[self._taken]
            self._taken += 1
            self._pushed.clear()
            if kind in ERRORS:
                raise ERRORS[kind]()  # noqa: RSE102 - it is a function
            if answer != TOLD:
                return value
            before, self.is_told = {*threading.enumerate()}, True
            try:
                self._operator.on_kill()
            finally:
                for thread in {*threading.enumerate()} - before:
                    thread.join()
        raise SystemExit  # which neither a thread nor an event loop reports

    def _note(self, *request: Any) -> None:
        answers, pushed = tuple(self._answers), tuple(self._pushed)
        self._found.append(Process(self.start, answers, request, pushed, self._has_succeeded))

    def _keep(self) -> None:
        """
        Keep the processes that were found, or the same ones of an earlier run.

        Processes are one if they have heard the same and will ask the same if nothing goes wrong, even if one was
        told to end earlier. Of those that have succeeded, only what they will ask counts.
        """
        will: tuple[Any, ...] = ()
        for process in reversed(self._found):
            heard = [each for each in process.answers if each not in _NO_NEWS and not process.has_succeeded]
            now = self.is_told, process.request, process.pushed
            same = _processes.setdefault((self.start, *heard, now, *will), process)
            _processes[self.start, process.answers] = same
            will = process.answers[-1:], same

    def push(self, key: str, value: Any) -> None:
        """Push an XCom. Of the progress, only the sentences for the user count."""
        if key == PROGRESS:
            shown = value | (value.get("end") or {})
            value = {name: shown.get(name) for name in ("choices", "if_retried", "cost", "if_lost")}
        if not self._is_over and (key != PROGRESS or any(value.values())):
            self._pushed.append((key, as_json(value)))

    def pull(self, key: str) -> Any:
        """Return an XCom."""
        return json.loads(self.ask("xcom", key))

    def _task(self) -> None:
        operator, resumes = self._operator, self.start.resumes
        context: Any = {"ti": self._instance(operator), "task": operator}
        context["dag_run"] = SimpleNamespace(clear_number=0)
        context["task_state_store"] = SimpleNamespace(get=_get, set=_set, delete=partial(ask, "delete"))
        try:
            if resumes:
                value = operator.resume_execution(resumes[0], json.loads(resumes[1]), context)
            else:
                value = inspect.unwrap(type(operator).execute)(operator, context)
            operator.post_execute(context, value)
        except TaskDeferred as deferred:
            stored = as_json(deferred.kwargs or {}), as_json(deferred.trigger.serialize())
            ask("finish", "deferred", deferred.method_name, *stored)
        except Exception as error:  # noqa: BLE001 - the end of the task
            failure = getattr(error, "failure", error)
            is_final = isinstance(error, AirflowFailException | AirflowSensorTimeout | AirflowSkipException)
            ask("finish", "failed" if is_final else "retry", type(failure).__name__)
        else:
            ask("finish", "success", as_json(value))
            for callback in operator.on_success_callback or ():
                callback(context)

    def _trigger(self) -> None:
        trigger: Any = rebuilt(*json.loads(self.start.trigger))
        trigger.task_instance = self._instance(None)
        if trigger.kickoff_id:  # the trigger of a batch has many
            trigger.report = Poller(hook_of(trigger), trigger.kickoff_id, WatchRules(**trigger.rules)).report
        asyncio.run(trigger.on_kill())

    def _instance(self, task: Any) -> Instance:
        about = SimpleNamespace(task_reschedule_count=0, xcom_keys_to_clear=self.start.left)
        began_at, tries = datetime.fromtimestamp(NOW, UTC), (self.start.try_number, self.start.max_tries)
        ti = Instance(*tries, start_date=began_at, task=task, _ti_context_from_server=about)
        ti.job, ti.id = self, UUID(int=self.start.try_number)
        return ti


def ask(*request: Any) -> Any:
    """Return the answer to a request of the process that is under way, or raise it."""
    return _plays[0].ask(*request)


def _sleep(seconds: float) -> None:
    """Let time pass, as much as the answer says."""
    if seconds:
        _plays[0].clock += max(seconds, 60.0) + ask("sleep")


def _now() -> float:
    return _plays[0].clock


def _get(key: str) -> Any:
    return json.loads(ask("get", key))


def _set(key: str, value: Any, **_: Any) -> None:
    ask("set", key, as_json(value))


class Files(ResultFiles):
    """The files of a batch, which are entries in the store of the model. No process reads the result files."""

    def append(self, facts: Any) -> None:
        if facts := [*facts]:
            content = sha256(as_json(facts).encode()).hexdigest()  # another name is another state
            self.write(f"{FACTS}/{content}", facts)

    def write(self, name: str, lines: Any) -> None:
        is_read = name.startswith((FACTS, "batch"))
        _set(f"{FILE}{name if is_read else name.partition('-')[0]}", [*lines] if is_read else None)

    def read(self, name: str) -> Iterator[Any]:
        return iter(_get(f"{FILE}{name}") or ())

    def names(self) -> list[str]:
        return [*ask("names", f"{FILE}{FACTS}/")]

    def _owners(self) -> list[str]:
        return [*ask("names", f"{FILE}batch")]


async def _at_once(_: Any, function: Callable[..., Any], *args: Any, **__: Any) -> Any:
    """Call a function of Airflow in this thread, whose clock is that of the play."""
    return function(*args)


def _client(settings: Any, _secrets: Any = ()) -> Any:
    """Return the client of a crew, whose responses are answers."""

    def kickoff(request: Any) -> Any:
        path = from_json(request.body).get("crewWebhookUrl", "").rpartition("/")[2]
        return ask("kickoff", path, _plays[0].is_told)

    def answer(_: str, given: bytes) -> Any:
        event = json.loads((_plays[0].start.resumes or "")[1])["event"]
        return ask("answer", from_json(given)["taskId"], event.get("responded_at", ""))

    def status(kickoff_id: str) -> Any:
        is_started = kickoff_id[1:].isdigit()  # a batch asks for another one, to hear whether the crew responds
        return execution(kickoff_id, ask("status", kickoff_id) if is_started else ask("status of another"))

    return SimpleNamespace(
        settings=settings,
        inputs=lambda: CrewInputs(inputs=()),
        kickoff=kickoff,
        status=status,
        cancel=lambda kickoff_id: execution(kickoff_id, ask("stop", kickoff_id)),
        answer=answer,
        close=lambda: None,
    )


def execution(kickoff_id: str, status: str) -> Any:
    """Return an execution as the client returns it."""
    match status:
        case "running":
            return Running(status="running", kickoff_id=kickoff_id, word="running")
        case "completed":
            return Completed(status="completed", kickoff_id=kickoff_id, output="A result.")
    word, error = ("revoked", "It was revoked.") if status == "stopped" else ("failed", "No.")
    return Failed(status="error", kickoff_id=kickoff_id, error=error, word=word)


@dataclass(frozen=True)
class Task:
    """
    A kind of task.

    :param airflow: Version of Airflow.
    :param discards: Whether its user may clear it without its kept state.
    :param surprises: Faults and actions of the user in each story.
    :param attempts: Number of attempts, of which the last one is not resumed unless ``resumes_last``.
    :param has_record: Whether there is one kickoff record, as the page needs it.
    :param has_ghosts: Whether Airflow may take a process for dead that runs on.
    :param settles: Whether crews call after a lost response.
    :param questions: How often the crew asks.
    """

    operator: Callable[[], Any]
    airflow: tuple[int, int] = (3, 3)
    discards: bool = False
    surprises: int = 1
    attempts: int = 3
    resumes_last: bool = True
    has_record: bool = True
    has_ghosts: bool = False
    settles: bool = False
    questions: int = 0


TASKS: dict[str, Task] = {}


class _Interrupted(threading.Event):
    """The event in a shielded block, whose time is that of the process."""

    def wait(self, timeout: float | None = None) -> bool:
        _sleep(timeout or 0.0)
        return self.is_set()


class _Log:
    """Log that keeps what it says of an answer that is not sent."""

    def warning(self, _: str, text: str = "", *__: Any) -> None:
        if text.startswith("The answer was not sent"):
            _plays[0].push("log", text)

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def played(task: Task) -> Iterator[None]:
    """Replace what surrounds the processes of a task."""
    _processes.clear()
    settings = {
        "AIRFLOW_CONN_CREW_DEFAULT": f"crew://:token-of-twenty-signs@{ADDRESS.partition('//')[2]}",
        "AIRFLOW__CREW__SETTLE_KICKOFFS": str(task.settles),
        "AIRFLOW__CREW__EVENTS_URL": "https://airflow.example/crew/events",
        "AIRFLOW__CREW__WEBHOOK_CONN_ID": "crew_receiver",
        "AIRFLOW__CREW__REQUIRED_ACTIONS": "True",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        connection = load_connection("crew_default")
        parts: dict[str, Any] = {
            "hooks.crew.load_connection": lambda *_: connection,
            "api_server.open_required_action": lambda *_, params=None, **__: ask(
                "open", params["question"]["value"] if params else ""
            ),
            # An attempt sends one kickoff, so its number is unique.
            "settle.address.secrets": SimpleNamespace(token_urlsafe=lambda _: f"{_plays[0].start.try_number}"),
            "api_server.in_thread": _at_once,
            "task.record.warn": lambda *_: None,
            "task.record.log": _Log(),
            "settle.kickoff.log": _Log(),
            "batch.state.ResultFiles": Files,
            "batch.state.BatchRun.each": one_by_one,
            "versions.CLEARING_DELETES_TASK_STATE": task.airflow >= (3, 4),
        }
        for module in ("task.attempt", "batch.start", "batch.store"):
            parts[f"{module}.shielded"] = lambda work: work(_Interrupted())
        for module in ("settle.kickoff", "task.send", "answers.people", "hooks.connection"):
            parts[f"{module}.load_secret"] = lambda _: SECRET
        for owner in ("operators.base.CrewTask", "hooks.crew.CrewHook", "triggers.crew.CrewExecutionTrigger"):
            parts[f"{owner}.log"] = _Log()
        for module in ("client.client", "batch.state"):
            parts[f"{module}.CrewClient"] = _client
        for name, part in parts.items():
            patch.setattr(f"airflow_provider_crew.{name}", part)
        patch_airflow(patch, lambda _: ask("state"), lambda _: _plays[0])
        patch.setattr("airflow_provider_crew.hooks.polling.SteadyClock.__call__", lambda _: _now())
        for name, own in (("sleep", _sleep), ("time", _now), ("monotonic", _now)):
            patch.setattr(time, name, own)
        yield
