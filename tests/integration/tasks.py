"""
Tasks run in this process, against the local server, as Airflow runs them: attempt after attempt.

Each attempt, and each resumption after a deferral, gets its own operator, as Airflow runs it in its own process.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib import import_module
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew import api_server
from airflow_provider_crew.client.watch import WatchRules
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.supported import AIRFLOW

TOKEN = "organization-token-4711"
INPUTS = {"topic": "harbours", "audience": "sailors"}
CONNECTION = "AIRFLOW_CONN_CREW_DEFAULT"
# Airflow's function that returns the states of tasks by run.
TASK_STATES = "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states"
SLOW = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=3600),), inputs=())
FAILING = Scenario(tasks=(ScenarioTask(name="writing_task", error="out of credit"),), inputs=())
QUICK = Scenario().without_waiting()
# A deployed crew that waits for a person until the test approves: the service says that it does not know it.
ASKING = Scenario(
    tasks=(ScenarioTask(name="writing_task", output="Approved.", human_input=True),), inputs=(), dialect="deployed"
)


class StoreBroken(RuntimeError):
    """What Airflow's store of task states raises when Airflow's API does not answer."""


def api_error(status: int | None) -> Exception:
    """Return what Airflow raises in a task when Airflow's API answers with this status, or not at all."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))


def skip_where_pokes_forget(mode: Mapping[str, Any]) -> None:
    """Skip a sensor whose pokes, processes of their own, would have to know of each other."""
    if AIRFLOW < (3, 3) and mode.get("mode") == "reschedule":
        pytest.skip("before Airflow 3.3 a sensor remembers nothing")


class TaskStateStore:
    """Airflow's store of the states of one task, from 3.3 on: JSON by key, the same one for all tries."""

    def __init__(self, same_as: TaskStateStore | None = None) -> None:
        self._kept: dict[str, str] = same_as._kept if same_as else {}
        self.retentions: dict[str, Any] = {}
        self.breaks_at: Callable[[str], bool] = lambda _: False
        self.breaks_with: BaseException = StoreBroken("the API does not answer")
        self.keeps_all = False

    def get(self, key: str, default: Any = None) -> Any:
        self._call("get")
        return json.loads(self._kept[key]) if key in self._kept else default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        if not self.keeps_all:
            self._call("set")
        self._kept[key] = json.dumps(value, allow_nan=False)
        self.retentions[key] = retention
        if self.keeps_all:
            self._call("set")

    def delete(self, key: str) -> None:
        self._call("delete")
        self._kept.pop(key, None)

    @property
    def texts(self) -> dict[str, str]:
        """What is stored, as Airflow's database has it."""
        return self._kept

    @property
    def entries(self) -> dict[str, Any]:
        """Everything that is stored."""
        return {key: json.loads(text) for key, text in self._kept.copy().items()}

    @property
    def kickoff(self) -> dict[str, Any] | None:
        """What is remembered of the kickoff, without the sentences for the Crew tab."""
        kept = self.entries.get("crew_kickoff")
        return kept and {name: value for name, value in kept.items() if name != "if_lost"}

    @property
    def has_delivered(self) -> bool:
        """Whether it is remembered that Airflow has what the task returned."""
        return bool(self.kickoff and self.kickoff["delivered"])

    def _call(self, name: str) -> None:
        if self.breaks_at(name):
            raise self.breaks_with


@dataclass
class TaskInstance:
    """What a task asks of its task instance."""

    try_number: int = 1
    max_tries: int = 0
    dag_id: str = "research"
    run_id: str = "manual__2026-01-01"
    task_id: str = "crew"
    map_index: int = -1
    id: UUID = field(default_factory=uuid4)
    start_date: datetime = field(default_factory=lambda: datetime.now(UTC))
    first_poke: datetime | None = None
    xcoms: dict[str, Any] = field(default_factory=dict)
    _ti_context_from_server: Any = None
    refused_xcoms: frozenset[str] = frozenset()
    task: Any = None
    rendered_map_index: str | None = None

    def xcom_push(self, key: str, value: Any) -> None:
        if key.startswith(tuple(self.refused_xcoms)):
            raise RuntimeError("the XCom backend is full")
        if key == "crew_progress":
            from airflow.sdk.execution_time.xcom import XCom

            names = {name: getattr(self, name) for name in ("dag_id", "task_id", "run_id", "map_index")}
            XCom.set(key=key, value=value, **names)
            return
        self.xcoms[key] = json.loads(json.dumps(value, allow_nan=False))

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int) -> Any:
        assert (task_ids, map_indexes) == (self.task_id, self.map_index)
        return self.xcoms.get(key)

    def get_first_reschedule_date(self, _context: Any) -> datetime | None:
        return self.first_poke


class Task:
    """One task of one run: ``make`` builds its operator, once for each process."""

    def __init__(self, make: Callable[[], Any], *, store: Any = None, retries: int = 0, **instance: Any) -> None:
        self._make = make
        self.retries = retries
        self.store = store
        self.ti = TaskInstance(try_number=0, max_tries=retries, **instance)
        self.clears = 0

    @property
    def context(self) -> Any:
        dag_run = SimpleNamespace(clear_number=self.clears)
        context = {"ti": self.ti, "dag_run": dag_run}
        return context if self.store is None else context | {"task_state_store": self.store}

    def clear(self) -> None:
        """Do what Airflow does to a task instance that somebody clears."""
        self.ti.max_tries = self.ti.try_number + self.retries
        self.clears += 1

    def begin(self) -> Any:
        """Begin the next try, and return its operator."""
        self.count_attempt()
        return self.operator()

    def count_attempt(self) -> None:
        """Begin the next try: Airflow names the XComs of the one before, and deletes them."""
        self.ti.try_number += 1
        about = SimpleNamespace(task_reschedule_count=0, xcom_keys_to_clear=[*self.ti.xcoms])
        self.ti._ti_context_from_server = about
        self.ti.xcoms.clear()
        self.ti.start_date = datetime.fromtimestamp(time.time(), UTC)

    def operator(self) -> Any:
        """Return the operator of a process, rendered."""
        operator = self._make()
        operator.render_template_fields(self.context)
        return operator

    def run(self) -> Any:
        """Run the next try to its end, through the triggerer when it defers."""
        operator = self.begin()
        try:
            return self._ended(operator, operator.execute(self.context))
        except TaskDeferred as deferred:
            return self.finish(deferred)

    def finish(self, waiting: TaskDeferred) -> Any:
        """Run a deferred try to its end, through the triggerer each time that it defers again."""
        while True:
            try:
                return self.resume(waiting, self.event_of(waiting))
            except TaskDeferred as deferred:
                waiting = deferred

    def event_of(self, waiting: TaskDeferred) -> dict[str, Any]:
        """Return the event with which the trigger of a deferred try fires."""
        event = asyncio.run(fired(self.revived(waiting)))
        api_server.REQUESTS.submit(int).result()  # the trigger does not wait until its request is closed
        return event

    def revived(self, waiting: TaskDeferred) -> CrewExecutionTrigger:
        """Return the trigger of a deferred try as the triggerer builds it from what is stored."""
        path, stored = waiting.trigger.serialize()
        trigger = rebuilt(path, json.loads(json.dumps(stored, allow_nan=False)))
        trigger.task_instance = self.ti  # type: ignore[assignment]
        return trigger

    def deferred(self) -> TaskDeferred:
        """Run the next try up to its deferral."""
        operator = self.begin()
        with pytest.raises(TaskDeferred) as caught:
            operator.execute(self.context)
        return caught.value

    def resume(self, waiting: TaskDeferred, event: dict[str, Any]) -> Any:
        """Resume a deferred try in another process."""
        told = {**(waiting.kwargs or {}), "event": json.loads(json.dumps(event, allow_nan=False))}
        operator = self.operator()
        return self._ended(operator, operator.resume_execution(waiting.method_name, told, self.context))

    def resume_without_event(self, why: str, traceback: list[str] | None = None) -> Any:
        """Resume as Airflow does when a trigger has broken, or did not fire in time."""
        operator, told = self.operator(), {"error": why, "traceback": traceback}
        return self._ended(operator, operator.resume_execution("__fail__", told, self.context))

    def _ended(self, operator: Any, result: Any) -> Any:
        operator.post_execute(self.context)
        for callback in operator.on_success_callback:
            callback(self.context)
        return result


def poked(task: Task) -> Any:
    """Run one try of a task, poke after poke, each of them in a process of its own."""
    began = datetime.now(UTC)
    for _ in range(1000):
        try:
            return task.run()
        except AirflowRescheduleException as later:
            task.ti.try_number -= 1
            task.ti.first_poke = began
            time.sleep(max(0.0, (later.reschedule_date - datetime.now(UTC)).total_seconds()))
    raise AssertionError("not over after 1000 pokes")


def rebuilt(path: str, stored: Mapping[str, Any]) -> CrewExecutionTrigger:
    """Return a trigger from what Airflow's database has of it."""
    module, _, name = path.rpartition(".")
    trigger: CrewExecutionTrigger = getattr(import_module(module), name)(**stored)
    return trigger


def trigger_of(kickoff_id: str, **options: Any) -> CrewExecutionTrigger:
    """Return a trigger that polls often for an hour, with these arguments or rules."""
    names = {each.name for each in fields(WatchRules)}
    rules: dict[str, Any] = {"deadline": time.time() + 3600, "poll_interval": 0.02}
    rules |= {name: options.pop(name) for name in names & options.keys()}
    return CrewExecutionTrigger(kickoff_id, "crew_default", rules=asdict(WatchRules(**rules)), **options)


async def fired(trigger: CrewExecutionTrigger) -> dict[str, Any]:
    """Run a trigger up to its one event."""
    (event,) = [event async for event in trigger.run()]
    return event.payload


class LeftXComs:
    """What Airflow keeps of the progress that tasks and triggers leave, and whose it is."""

    def __init__(self) -> None:
        self.progress: list[dict[str, Any]] = []
        self.left_for: list[dict[str, Any]] = []
        self.others: dict[str, Any] = {}
        self.at: Callable[[dict[str, Any]], None] = lambda _: None

    def take(self, backend: Any, /, key: str, value: Any, **left_for: Any) -> None:
        """Take one as ``XCom.set`` does, which stores what the backend makes of it."""
        if key != "crew_progress":
            self.others[key] = value
            return
        self.at(value)
        stored = backend.serialize_value(value, key=key, **left_for)
        self.progress.append(json.loads(json.dumps(stored, allow_nan=False)))
        self.left_for.append(left_for)


class WatchedService(LocalCrewService):
    """A crew that tells when it is kicked off, before it answers, and when it answers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"scenario": QUICK, "token": TOKEN, "on_request": self._ended, **options})
        self.rejects_unknown_fields = True
        self.xcoms = LeftXComs()
        self.required_actions: list[Any] = []
        self.stored_answer: dict[str, Any] | None = None
        """The answer that Airflow has stored, but for which it has resumed no task."""
        self.at_kickoff: Callable[[], None] = lambda: None
        self.after: Callable[[ReceivedRequest], None] = lambda _: None
        """Called before an answer is sent, so that no client is faster; or at the end of a request without one."""
        self._answered: set[int] = set()

    def answers(self, request: ReceivedRequest) -> None:
        """Note that the answer to a request is about to be sent."""
        if any(each is request for each in reversed(self.requests)):  # not of another crew
            self._answered.add(id(request))
            self.after(request)

    def _ended(self, request: ReceivedRequest) -> None:
        if id(request) not in self._answered:
            self.after(request)

    def take(self, *args: Any) -> Any:
        self.at_kickoff()
        return super().take(*args)

    def new_execution(self, scenario: Scenario = QUICK) -> str:
        """Start an execution without a task, and return its kickoff ID."""
        self.scenario = scenario
        return str(self.take(INPUTS, None, {}))

    def at_look(self, number: int, act: Callable[[], Any]) -> None:
        """Do something when an execution was looked at so often from now on."""
        looks, others = count(1), self.after

        def note(request: ReceivedRequest) -> None:
            others(request)
            if request.operation == "status" and next(looks) == number:
                act()

        self.after = note

    @property
    def ids(self) -> list[str]:
        """The kickoff ID of each execution, in order."""
        return [kickoff.kickoff_id for kickoff in self.kickoffs]

    @property
    def stopped_ids(self) -> list[str]:
        """The execution of each request to stop one."""
        return [request.path.rpartition("/")[2] for request in self.requests.on("stop")]

    @property
    def calls(self) -> list[str]:
        """What was asked for, in order."""
        return [str(request.operation) for request in self.requests]


class Log:
    """What was logged, wherever it went: the terminal, or Python's logging."""

    def __init__(self, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
        self._capfd, self._caplog = capfd, caplog
        self._text = ""

    @property
    def text(self) -> str:
        self._text += "".join(self._capfd.readouterr())
        return self._text + self._caplog.text

    @property
    def warnings(self) -> str:
        """The lines that are warnings."""
        lines = self.text.splitlines()
        return "\n".join(line for line in lines if "WARNING" in line or "[warning" in line)


class Ledger:
    """The runs of the DAG that counts, as Airflow's database keeps them: a name once."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.unseen: set[str] = set()
        """Runs that another has started since somebody looked."""
        self.breaks_with: Exception | None = None
        self._lock = threading.Lock()

    def count(self, *, dag_id: str, run_ids: list[str]) -> int:
        assert dag_id == "crew_budget"
        return len({*run_ids} & self.runs.keys() - self.unseen)

    def start(self, run_id: str, conf: dict[str, Any]) -> bool:
        if self.breaks_with:
            raise self.breaks_with
        with self._lock:
            return self.runs.setdefault(run_id, conf) is conf
