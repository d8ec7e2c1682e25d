"""Airflow's side of a task: its database, its processes, and what users do to it, as far as a task can notice."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowSkipException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated
from airflow.sdk.execution_time.context import set_current_context

from tests.integration.tasks import TaskInstance, fired, revived

if TYPE_CHECKING:
    from tests.machine.world import World

_FINAL = (AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated)
_TIME_TO_END = 5.0
_HEARTBEATS = 300.0


class Killed(SystemExit):
    """The process is killed here. An event loop lets nothing else pass from anywhere."""


class Process:
    """A process of a worker or, without an operator, of a triggerer."""

    def __init__(self, world: World, operator: Any = None) -> None:
        self.world = world
        self.operator = operator
        self.is_over = self.is_dead = self.is_told = False
        self._rung = threading.Event()

    def die(self) -> None:
        """Kill the process that runs now."""
        if not self.is_over:
            self.is_dead = True
            raise Killed

    def tell(self) -> None:
        """Send SIGTERM, and SIGKILL later. On Airflow 3, the handler calls on_kill, and the task goes on."""
        if self.operator and not self.is_over:
            self.is_told = True
            self.world.clock.later(_TIME_TO_END, self.die)
            self.operator.on_kill()

    def ring(self) -> None:
        """Ring the alarm of execution_timeout, whose handler raises in the main thread."""
        if self.is_over:
            return
        if threading.current_thread() is threading.main_thread():
            raise AirflowTaskTimeout("Timeout")

        def rung(*_: object) -> None:
            self._rung.set()
            raise AirflowTaskTimeout("Timeout")

        signal.signal(signal.SIGALRM, rung)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        self._rung.wait()


@dataclass
class Outcome:
    """How an attempt has ended, as far as Airflow knows."""

    value: Any = None
    error: BaseException | None = None
    is_lost: bool = False

    @property
    def failure(self) -> Any:
        """The error of the package."""
        return getattr(self.error, "failure", self.error)


class Instance(TaskInstance):
    """A task instance as one process has it."""

    job: Any

    def xcom_push(self, key: str, value: Any) -> None:
        self.job.push(key, value)

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int) -> Any:
        assert (task_ids, map_indexes) == (self.task_id, self.map_index)
        return self.job.pull(key)


@dataclass
class Task:
    """One task instance in Airflow's database. ``make`` builds its operator, once for each process."""

    world: World
    make: Callable[[], Any]
    task_id: str = "crew"
    retries: int = 0
    map_index: int = -1
    state: str = "scheduled"
    try_number: int = 0
    clears: int = 0
    wipes: int = 0
    store: dict[str, str] = field(default_factory=dict)
    xcoms: dict[str, str] = field(default_factory=dict)
    watched: Callable[[], str] = str
    """Returns the execution of another task that this one waits for."""
    is_marked: bool = False
    began_at: float = 0.0

    def __post_init__(self) -> None:
        self.max_tries = self.retries
        self._leave: Callable[[], object] = lambda: None
        self._has_timed_out = False

    # What Airflow's API does for a process.

    def _stored(self, name: str, act: Callable[[], Any]) -> Any:
        with self.world.seam(name):
            self.world.airflow_answers()
            return act()

    def push(self, key: str, value: Any) -> None:
        text = json.dumps(value, allow_nan=False)
        self.world.show(text)
        self._stored("xcom", lambda: self.xcoms.__setitem__(key, text))

    def pull(self, key: str) -> Any:
        return self._stored("xcom", lambda: json.loads(self.xcoms.get(key, "null")))

    def get(self, key: str, default: Any = None) -> Any:
        return self._stored("get", lambda: json.loads(self.store[key]) if key in self.store else default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        del retention
        text = json.dumps(value, allow_nan=False)
        self.world.show(text)
        self._stored("set", lambda: self.store.__setitem__(key, text))

    def delete(self, key: str) -> None:
        self._stored("delete", lambda: self.store.pop(key, None))

    # What users, workers and triggerers do.

    def mark(self) -> None:
        """Mark the task as failed."""
        self.is_marked, self.state = True, "failed"
        self.tell()

    def clear(self, *, keeps: bool = True) -> None:
        """Clear the task, whether it runs or has ended."""
        self.clears, self.max_tries, self.is_marked = self.clears + 1, self.try_number + self.retries, False
        if not keeps:
            self.store.clear()
            self.wipes += 1
        runs = self.state == "running"
        self.state = "restarting" if runs else "scheduled"
        self.world.note_clear(self)
        self.tell()

    def suspend(self) -> None:
        """Suspend the process until Airflow takes it for lost. It is told to end when it wakes up."""
        self.world.suspended += 2 * _HEARTBEATS
        self.world.clock.now += 2 * _HEARTBEATS
        if self.world.process and self.world.process.operator and self.state == "running":
            self.state = self._after_failure()
            self.world.process.tell()

    def tell(self) -> None:
        """Shut down the worker, or hand the trigger over to another triggerer."""
        if self.world.process and self.world.process.operator:
            self.world.process.tell()
        else:
            self._leave()

    # An attempt.

    @property
    def is_due(self) -> bool:
        """Whether the scheduler runs an attempt."""
        return self.state in {"scheduled", "up_for_retry"}

    def attempt(self) -> Outcome:
        """Run the next attempt to its end, in as many processes as it takes."""
        self.try_number += 1
        self.began_at, self._first_poke, self._reschedules = self.world.clock.now, None, 0
        self._left, self.xcoms = [*self.xcoms], {}
        step: Callable[[Any, Any], Any] = lambda operator, context: operator.execute(context)  # noqa: E731
        first = step
        while True:
            self.state = "running"
            try:
                return self._succeeded(self._in_worker(step))
            except AirflowRescheduleException as later:
                if self.state != "running":
                    return self._ended(None)
                self._first_poke = self._first_poke or datetime.fromtimestamp(self.began_at, UTC)
                self._reschedules += 1
                pause = (later.reschedule_date - datetime.now(UTC)).total_seconds()
                self.world.clock.sleep(round(pause, 1))
                step = first
            except TaskDeferred as deferred:
                if self.state != "running":
                    return self._ended(None)
                found = self._resumed_by(deferred)
                if self.state != "deferred":
                    return self._ended(None)
                step = found
            except BaseException as error:  # noqa: BLE001 - the outcome
                return self._ended(error)

    def _instance(self) -> Instance:
        about = SimpleNamespace(task_reschedule_count=self._reschedules, xcom_keys_to_clear=self._left)
        ti = Instance(self.try_number, self.max_tries, task_id=self.task_id, map_index=self.map_index)
        ti.job, ti._ti_context_from_server, ti.first_poke = self, about, self._first_poke
        ti.start_date = datetime.fromtimestamp(self.began_at, UTC)
        return ti

    @contextmanager
    def _process(self, operator: Any = None) -> Iterator[Process]:
        process = self.world.process = Process(self.world, operator)
        try:
            yield process
        finally:
            process.is_over = True

    def _in_worker(self, step: Callable[[Any, Any], Any]) -> Any:
        operator, value = self.make(), None
        with self._process(operator) as process:
            context: Any = {"ti": self._instance(), "task": operator, "dag_run": SimpleNamespace(clear_number=0)}
            context["task_state_store"] = SimpleNamespace(get=self.get, set=self.set, delete=self.delete)
            if operator.execution_timeout:
                self.world.clock.later(operator.execution_timeout.total_seconds(), process.ring)
            try:
                with set_current_context(context):
                    result = step(operator, context)
                    operator.post_execute(context, result)
                    value = json.loads(json.dumps(result, default=vars, allow_nan=False))
                    with self.world.seam("success"):
                        if self.state == "running":
                            self.state = "success"
                            self.world.note_delivery(self, value)
                    for callback in operator.on_success_callback:
                        callback(context)
            except BaseException:
                if process.is_dead and self.state != "success":
                    raise Killed from None
                if not process.is_dead:
                    raise
            return value

    def _resumed_by(self, deferred: TaskDeferred) -> Callable[[Any, Any], Any]:
        """Run the trigger, and return the next step of the task."""
        stored, method = json.dumps(deferred.kwargs or {}, allow_nan=False), deferred.method_name
        self.world.show(stored)
        self.world.show(json.dumps(deferred.trigger.serialize(), allow_nan=False))
        self.state, self._has_timed_out, event = "deferred", False, None
        if deferred.timeout:
            self.world.clock.later(deferred.timeout.total_seconds(), self._time_out(self.try_number))
        while event is None and self.state == "deferred" and not self._has_timed_out:
            with self._process():
                try:
                    event = asyncio.run(self._event_of(deferred.trigger))
                except Killed:  # another triggerer takes over
                    self.world.process = None
                    self.world.clock.sleep(30)
                except Exception as error:  # noqa: BLE001 - Airflow resumes the task, which may fail then
                    told = {"error": "Trigger failure", "traceback": traceback.format_exception(error)}
                    return lambda operator, context: operator.resume_execution("__fail__", told, context)
        self.world.process = None
        if event is None:
            timeout = {**json.loads(stored), "error": "Trigger timeout"}
            return lambda operator, context: operator.resume_execution("__fail__", timeout, context)
        text = json.dumps(event, allow_nan=False)
        self.world.show(text)
        told = {**json.loads(stored), "event": json.loads(text)}
        return lambda operator, context: operator.resume_execution(method, told, context)

    def _time_out(self, try_number: int) -> Callable[[], None]:
        def out() -> None:
            if (self.state, self.try_number) == ("deferred", try_number):
                self._has_timed_out = True
                self._leave()

        return out

    async def _event_of(self, stored: Any) -> Any:
        trigger: Any = revived(stored)
        trigger.task_instance = self._instance()
        leaves = asyncio.Event()
        self._leave = leaves.set
        running, leaving = asyncio.create_task(fired(trigger)), asyncio.create_task(leaves.wait())
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        self._leave = lambda: None
        if not running.done():
            running.cancel("User action")
            found = await asyncio.gather(running, return_exceptions=True)
            if getattr(found[0], "args", ()):
                await trigger.on_kill()
            return None
        leaving.cancel()
        return running.result()

    def _succeeded(self, value: Any) -> Outcome:
        if self.state != "success":
            return self._ended(None)
        self.xcoms["return_value"] = json.dumps(value)
        self.world.show(self.xcoms["return_value"])
        self.world.process = None
        return Outcome(value)

    def _ended(self, error: BaseException | None) -> Outcome:
        """Note the end of an attempt that Airflow may have ended already."""
        process, self.world.process = self.world.process, None
        is_lost = error is None or bool(process and process.is_dead)
        if not is_lost:
            self.world.show("".join(traceback.format_exception(error)) + repr(vars(error)))
        if self.state == "restarting":
            self.state = "scheduled"
        elif self.state == "running":
            self.state = self._after(error)
        return Outcome(error=None if is_lost else error, is_lost=is_lost)

    def _after(self, error: BaseException | None) -> str:
        if isinstance(error, AirflowSkipException):
            return "skipped"
        return "failed" if isinstance(error, _FINAL) else self._after_failure()

    def _after_failure(self) -> str:
        return "up_for_retry" if self.try_number <= self.max_tries else "failed"
