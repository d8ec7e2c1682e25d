"""A task, attempt after attempt, as Airflow runs it: its database, its processes, and what users do to it."""

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
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.sdk import exceptions
from airflow.sdk.execution_time.context import set_current_context
from airflow.sdk.execution_time.timeout import timeout as alarm

from tests.integration import tasks
from tests.integration.tasks import TASK_STATES, TaskInstance, TaskStateStore, fired, rebuilt

if TYPE_CHECKING:
    from tests.promises.harness import World

# What the triggerer passes to the task of a trigger that a user has ended.
_USER_ACTION = "User action"
_A_DAY = 86_400.0
# Seconds that a thread of the crew waits for the task's process. It never takes that long.
_PATIENCE = 60.0
_KILL = signal.SIGUSR1

Step = Callable[[Any, Any], Any]
"""What a process does with its operator and a context."""


class Killed(SystemExit):
    """The process is killed here. An event loop lets nothing else pass from anywhere."""


class Marked(Exception):
    """A user has marked or cleared the task, so it does not go on."""


# From Airflow 3.2 on, the SDK has what ends the task of an agent.
_TERMINATED: Any = getattr(exceptions, "AirflowTaskTerminated", Marked)
_FINAL = (AirflowFailException, AirflowSensorTimeout, AirflowSkipException, _TERMINATED, Marked)


@dataclass(frozen=True)
class Outcome:
    """How an attempt has ended: with a value, or with an error."""

    value: Any = None
    error: BaseException | None = None

    @property
    def cost(self) -> Any:
        """What the error says of the cost. An agent may call another tool after an error without a cost."""
        return getattr(self.error, "cost", "none")

    @property
    def is_retried(self) -> bool:
        """Whether Airflow retries the task, as long as it has retries."""
        return self.error is not None and not isinstance(self.error, _FINAL)


class Process:
    """A process that gets signals, unless it is a triggerer's. Another thread sends them, and waits for each."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.is_dead = False
        self._told, self._rung = threading.Event(), threading.Event()

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Handle signals, and limit the time, as Airflow does."""
        limit = self.operator and self.operator.execution_timeout
        with ExitStack() as stack:
            if self.operator:
                self._handle(stack, signal.SIGTERM, self._is_told)
                self._handle(stack, _KILL, self._is_killed)
            if limit:
                self._timer = stack.enter_context(alarm(limit.total_seconds()))
                self._handle(stack, signal.SIGALRM, self._rings)
            yield

    def tell(self) -> None:
        self._send(signal.SIGTERM, self._told.is_set)

    def kill(self) -> None:
        self._send(_KILL, lambda: self.is_dead)

    def ring(self) -> None:
        self._send(signal.SIGALRM, self._rung.is_set)

    @staticmethod
    def _handle(stack: ExitStack, number: int, act: Callable[..., Any]) -> None:
        stack.callback(signal.signal, number, signal.signal(number, act))

    def _is_told(self, *_: object) -> None:
        self._told.set()
        self.operator.on_kill()

    def _is_killed(self, *_: object) -> None:
        self.is_dead = True
        raise Killed

    def _rings(self, *given: Any) -> None:
        self._rung.set()
        self._timer.handle_timeout(*given)

    def _send(self, number: int, has_arrived: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while self.operator and not has_arrived() and time.monotonic() < until:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            time.sleep(0.01)


@dataclass
class Instance(TaskInstance):
    """A task instance as one process has it."""

    job: Any = None

    def xcom_push(self, key: str, value: Any) -> None:
        self.job.push(key, value)

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int) -> Any:
        assert (task_ids, map_indexes) == (self.task_id, self.map_index)
        return self.job.pull(key)


class Task(tasks.Task):
    """One task instance in Airflow's database. ``make`` builds its operator, once for each process."""

    def __init__(self, world: World, make: Callable[[], Any], task_id: str = "crew") -> None:
        super().__init__(make, store=TaskStateStore(), retries=2)
        self.ti = Instance(0, self.retries, task_id=task_id, job=self)
        self.xcoms = self.ti.xcoms
        self.world = world
        self.world.tasks[task_id] = self
        self.state = "scheduled"
        self.process: Process | None = None
        self.deferral: dict[str, Any] = {}
        """Trigger, arguments of the next process, and the event, as Airflow's database has them."""
        self._leave: Callable[[], object] = lambda: None

    # What Airflow does for a process.

    def push(self, key: str, value: Any) -> None:
        """Store an XCom."""
        stored = self._shown(value)
        self.check_alive()
        self.xcoms[key] = stored

    def pull(self, key: str) -> Any:
        self.check_alive()
        return self.xcoms.get(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.check_alive()
        return self.store.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self.check_alive()
        self.store.set(key, self._shown(value), retention=retention)

    def delete(self, key: str) -> None:
        self.check_alive()
        self.store.delete(key)

    def _shown(self, value: Any, **how: Any) -> Any:
        text = json.dumps(value, allow_nan=False, **how)
        self.world.stored.append(text)
        return json.loads(text)

    # What users, workers and triggerers do.

    def mark(self) -> None:
        """Mark the task as failed."""
        self.state = "failed"
        self.tell()

    def clear(self) -> None:
        """Clear the task, whether it runs or has ended."""
        super().clear()
        self.state = "restarting" if self.state == "running" else "scheduled"
        self.tell()

    def tell(self) -> None:
        """Shut down the worker, or hand the trigger over to another triggerer."""
        if self.process and self.process.operator:
            self.process.tell()
        else:
            self._leave()

    def kill(self) -> None:
        """Kill the process."""
        if self.process:
            self.process.kill()

    def ring(self) -> None:
        """Let execution_timeout pass."""
        if self.process:
            self.process.ring()

    # An attempt.

    @property
    def is_dead(self) -> bool:
        """Whether the process that runs now is killed."""
        return self.process is not None and self.process.is_dead

    def check_alive(self) -> None:
        """Raise in a killed process, which does nothing more."""
        if self.is_dead:
            raise Killed

    def attempt(self, deferral: dict[str, Any] | None = None) -> Outcome:
        """Run the next attempt to its end, in as many processes as it takes. Or go on with a deferred one."""
        self.state = "running"
        try:
            if not deferral:
                self.count_attempt()
                self.ti.id, self.ti.first_poke = uuid4(), None
            return Outcome(self._run(self._resumed_by(deferral) if deferral else _executed))
        except BaseException as error:  # noqa: BLE001 - the outcome
            if not isinstance(error, Killed | Marked):
                self.world.stored.append("".join(traceback.format_exception(error)) + repr(vars(error)))
            if self.state == "running":
                self.state = "failed"
            return Outcome(error=error)

    def _run(self, step: Step) -> Any:
        while True:
            try:
                return self._in_worker(step)
            except AirflowRescheduleException as later:
                with self._outside("up_for_reschedule"):
                    self.ti.first_poke = self.ti.first_poke or self.ti.start_date
                    self.ti._ti_context_from_server.task_reschedule_count += 1
                    pause = (later.reschedule_date - datetime.now(UTC)).total_seconds()
                    time.sleep(max(round(pause, 1), 0.0))  # so the time that this takes does not count
                step = _executed
            except TaskDeferred as deferred:
                step = self._resumed_by(self._stored(deferred))

    def _in_worker(self, step: Step) -> Any:
        operator = self.operator()
        context: Any = self.context | {"task": operator, "task_state_store": self}
        with self._process(operator) as process, set_current_context(context):
            try:
                result = step(operator, context)
                operator.post_execute(context, result)
                self._succeed(result)
                for callback in operator.on_success_callback:
                    callback(context)
            except BaseException:
                if not process.is_dead:
                    raise
        if self.state != "success":
            raise Killed if process.is_dead else Marked
        return self.xcoms["return_value"]

    def _succeed(self, result: Any) -> None:
        if self.state == "running":
            self.state, self.xcoms["return_value"] = "success", self._shown(result, default=vars)

    @contextmanager
    def _process(self, operator: Any = None) -> Iterator[Process]:
        self.process = process = Process(operator)
        try:
            with process.runs():
                yield process
        finally:
            self.process, self._leave = None, lambda: None

    @contextmanager
    def _outside(self, state: str) -> Iterator[None]:
        """Let the task wait outside of a worker, unless a user marks or clears it before or meanwhile."""
        if self.state != "running":
            raise Marked
        self.state = state
        yield
        if self.state != state:
            raise Marked
        self.state = "running"

    def _stored(self, deferred: TaskDeferred) -> dict[str, Any]:
        """Return a deferral as Airflow's database returns it."""
        left = {"method": deferred.method_name, "kwargs": deferred.kwargs or {}}
        limit = deferred.timeout and deferred.timeout.total_seconds()
        self.deferral = self._shown({"trigger": deferred.trigger.serialize(), **left, "timeout": limit})
        return self.deferral

    def _resumed_by(self, deferral: dict[str, Any]) -> Step:
        """Run the trigger, unless it has fired, and return the next step of the task."""
        method, told = "__fail__", deferral["kwargs"] | {"error": "Trigger timeout"}
        event, until = deferral.get("event"), time.time() + (deferral.get("timeout") or _A_DAY)
        with self._outside("deferred"):
            try:
                while event is None and self.state == "deferred" and time.time() < until:
                    event = self._fired(deferral["trigger"], until)
            except Exception as error:  # noqa: BLE001 - Airflow resumes the task, which may fail then
                told = {"error": "Trigger failure", "traceback": traceback.format_exception(error)}
        if event is not None:
            deferral["event"] = self._shown(event)
            method, told = deferral["method"], deferral["kwargs"] | {"event": deferral["event"]}
        return lambda operator, context: operator.resume_execution(method, told, context)

    def _fired(self, stored: list[Any], until: float) -> Any:
        """Return the event of a trigger. None if it has left its triggerer, or its time is over."""
        with self._process():
            return asyncio.run(self._event_of(stored, until))

    async def _event_of(self, stored: list[Any], until: float) -> Any:
        trigger: Any = rebuilt(*stored)
        trigger.task_instance = self.ti
        leaves, loop = asyncio.Event(), asyncio.get_running_loop()
        self._leave = lambda: loop.call_soon_threadsafe(leaves.set)
        running, leaving = asyncio.create_task(fired(trigger)), asyncio.create_task(leaves.wait())
        first, left = asyncio.FIRST_COMPLETED, until - time.time()
        await asyncio.wait({running, leaving}, timeout=left, return_when=first)
        leaving.cancel()
        if running.done():
            return running.result()
        running.cancel(_USER_ACTION)
        with_message = (await asyncio.gather(running, return_exceptions=True))[0]
        if getattr(with_message, "args", ()):
            await trigger.on_kill()
        return None


def _executed(operator: Any, context: Any) -> Any:
    return operator.execute(context)


def patch_airflow(patch: pytest.MonkeyPatch, state: Callable[[str], str], job: Callable[[str], Any]) -> None:
    """Let states and XComs that are not asked of a task instance be those of jobs, by the ID of the task."""

    def states(*, run_ids: list[str], task_ids: Sequence[str] | None = None, **_: Any) -> Any:
        return {run_ids[0]: {task_id: state(task_id) for task_id in task_ids or ("crew",)}}

    def xcom_set(key: str, value: Any, *, task_id: str, **_: Any) -> None:
        job(task_id).push(key, value)

    def xcom_get(*, key: str, task_id: str, **_: Any) -> Any:
        return job(task_id).pull(key)

    patch.setattr(TASK_STATES, staticmethod(states))
    patch.setattr("airflow.sdk.bases.xcom.BaseXCom.set", staticmethod(xcom_set))
    patch.setattr("airflow.sdk.bases.xcom.BaseXCom.get_one", staticmethod(xcom_get))
