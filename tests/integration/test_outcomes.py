"""
Outcomes of tasks that end without a result: the exception, its cost, whether Airflow retries, and the next step.

The tables are for tasks what the table of ``tests/unit/test_decide.py`` is for ``decide()``. Each row runs against
the local server, and has these columns:

trouble: ``inputs: 401`` means that the crew answers 401 to GET /inputs. ``result`` is the poll for a result that
is too large for a trigger's event. ``time limit`` is ``execution_timeout``.
store: whether the next attempt has the record of this one. A dot: this changes nothing.
choice: ``on_uncertain_kickoff``.
earlier: the kickoff in the record of an earlier attempt, before you cleared the task.
error: the class of the error.
Airflow's: the exception of Airflow that the error also is: ``Fail`` is AirflowFailException.
taken: the kickoffs that the crew accepted.
next: what the retry does when the trouble is over or, if there is none, what the task does after you clear it. It
kicks off, it reattaches, or it fails with the named error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from pydantic import BeforeValidator

from airflow_provider_crew import exceptions as ends
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.faults.held import HeldAnswer
from tests.integration.tasks import (
    CONNECTION,
    FAILING,
    INPUTS,
    QUICK,
    SLOW,
    Task,
    TaskStateStore,
    WatchedService,
    fired,
    poked,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="the tables are of an Airflow with a task state store")

KICKOFFS = """
trouble                 | choice | store | error             | Airflow's   | cost    | retried | taken | next
------------------------|--------|-------|-------------------|-------------|---------|---------|-------|-----------
connection: none        | .      | .     | Unreachable       | -           | none    | yes     | 0     | kicks off
connection: daily limit | .      | .     | DailyLimitReached | Fail        | none    | no      | 0     | kicks off
input: misspelled       | .      | .     | InvalidInputs     | Fail        | none    | no      | 0     | kicks off
output_type: wrong      | .      | .     | InvalidOutputType | Fail        | none    | no      | 0     | kicks off
crew: unreachable       | .      | .     | Unreachable       | -           | none    | yes     | 0     | kicks off
inputs: 401             | .      | .     | NotAuthenticated  | Fail        | none    | no      | 0     | kicks off
inputs: 500             | .      | .     | ServiceError      | -           | none    | yes     | 0     | kicks off
inputs: too large       | .      | .     | ResponseTooLarge | Fail        | none    | no      | 0     | kicks off
kickoff: 401            | .      | .     | NotAuthenticated  | Fail        | none    | no      | 0     | kicks off
kickoff: 422            | .      | .     | Rejected          | Fail        | none    | no      | 0     | kicks off
kickoff: 429            | .      | .     | RateLimited       | -           | none    | yes     | 0     | kicks off
kickoff: 500            | fail   | .     | UncertainKickoff  | Fail        | unknown | no      | 1     | kicks off
kickoff: 500            | retry  | .     | UncertainKickoff  | -           | unknown | yes     | 1     | kicks off
kickoff: reset          | fail   | .     | UncertainKickoff  | Fail        | unknown | no      | 1     | kicks off
kickoff: reset          | retry  | .     | UncertainKickoff  | -           | unknown | yes     | 1     | kicks off
store: unreadable       | .      | yes   | CrewError         | Exception   | unknown | yes     | 0     | kicks off
store: not writable     | .      | yes   | CrewError         | Exception   | none    | yes     | 0     | kicks off
task: told to end       | .      | .     | CrewError         | Exception   | none    | yes     | 0     | kicks off
task: extra attempt     | fail   | no    | UncertainKickoff  | Fail        | unknown | no      | 0     | kicks off
time limit: at inputs   | .      | .     | WaitedTooLong     | TaskTimeout | none    | yes     | 0     | kicks off
time limit: at kickoff  | .      | yes   | WaitedTooLong     | TaskTimeout | running | yes     | 1     | reattaches
time limit: at kickoff  | .      | no    | WaitedTooLong     | Fail        | running | no      | 1     | kicks off
"""
# The store has a record of an earlier, and you have cleared the task.
EARLIER = """
trouble               | earlier   | error            | Airflow's   | cost    | retried | taken | next
----------------------|-----------|------------------|-------------|---------|---------|-------|-----------------
connection: none      | uncertain | Unreachable      | -           | unknown | yes     | 0     | kicks off
inputs: 500           | uncertain | ServiceError     | -           | unknown | yes     | 0     | kicks off
kickoff: 422          | uncertain | Rejected         | Fail        | unknown | no      | 0     | kicks off
kickoff: 500          | uncertain | UncertainKickoff | Fail        | unknown | no      | 1     | kicks off
store: not writable   | uncertain | CrewError        | Exception   | unknown | yes     | 0     | kicks off
task: told to end     | uncertain | CrewError        | Exception   | unknown | yes     | 0     | kicks off
time limit: at inputs | uncertain | WaitedTooLong    | TaskTimeout | unknown | yes     | 0     | kicks off
inputs: 500           | unknown   | ServiceError     | -           | unknown | yes     | 0     | kicks off
kickoff: 422          | unknown   | Rejected         | Fail        | unknown | no      | 0     | kicks off
kickoff: 500          | unknown   | UncertainKickoff | Fail        | unknown | no      | 1     | kicks off
inputs: 500           | failed    | ServiceError     | -           | none    | yes     | 0     | kicks off
kickoff: 422          | failed    | Rejected         | Fail        | none    | no      | 0     | kicks off
kickoff: 500          | failed    | UncertainKickoff | Fail        | unknown | no      | 1     | kicks off
crew: moved           | running   | ExecutionUnknown | Fail        | running | no      | 0     | ExecutionUnknown
"""
WAITS = """
trouble                     | store | error            | Airflow's   | cost    | retried | taken | next
----------------------------|-------|------------------|-------------|---------|---------|-------|-----------------
crew: fails                 | .     | ExecutionFailed  | -           | ended   | yes     | 1     | kicks off
crew: forgets               | yes   | ExecutionUnknown | Fail        | running | no      | 1     | ExecutionUnknown
crew: forgets               | no    | ExecutionUnknown | Fail        | running | no      | 1     | kicks off
timeout: over               | yes   | WaitedTooLong    | -           | running | yes     | 1     | reattaches
timeout: over               | no    | WaitedTooLong    | Fail        | running | no      | 1     | kicks off
time limit: over            | yes   | WaitedTooLong    | TaskTimeout | running | yes     | 1     | reattaches
time limit: over            | no    | WaitedTooLong    | Fail        | running | no      | 1     | kicks off
status: 401                 | yes   | WatchBroken      | Fail        | running | no      | 1     | reattaches
status: 401                 | no    | WatchBroken      | Fail        | running | no      | 1     | kicks off
status: 500                 | yes   | LostContact      | -           | running | yes     | 1     | reattaches
status: 500                 | no    | LostContact      | Fail        | running | no      | 1     | kicks off
status: reset               | yes   | LostContact      | -           | running | yes     | 1     | reattaches
status: too large           | yes   | WatchBroken      | Fail        | running | no      | 1     | reattaches
output: misfit              | yes   | InvalidOutput    | Fail        | ended   | no      | 1     | reattaches
output: misfit              | no    | InvalidOutput    | Fail        | ended   | no      | 1     | kicks off
output: misfit, to retry    | .     | InvalidOutput    | -           | ended   | yes     | 1     | kicks off
output: unchecked, to retry | yes   | InvalidOutput    | Fail        | ended   | no      | 1     | reattaches
output: unchecked, to retry | no    | InvalidOutput    | Fail        | ended   | no      | 1     | kicks off
result: forgotten           | .     | ExecutionUnknown | Fail        | ended   | no      | 1     | kicks off
result: 401                 | yes   | WatchBroken      | Fail        | ended   | no      | 1     | reattaches
result: 401                 | no    | WatchBroken      | Fail        | ended   | no      | 1     | kicks off
result: 500                 | yes   | LostContact      | -           | ended   | yes     | 1     | reattaches
result: 500                 | no    | LostContact      | Fail        | ended   | no      | 1     | kicks off
"""
SENSORS = """
trouble            | option     | error             | Airflow's     | cost    | retried | taken | next
-------------------|------------|-------------------|---------------|---------|---------|-------|------------------
connection: none   | .          | LostContact       | -             | running | yes     | 0     | reattaches
kickoff_id: empty  | .          | InvalidKickoffId  | Fail          | unknown | no      | 0     | InvalidKickoffId
kickoff_id: empty  | soft_fail  | InvalidKickoffId  | Skip          | unknown | no      | 0     | InvalidKickoffId
output_type: wrong | .          | InvalidOutputType | Fail          | unknown | no      | 0     | reattaches
crew: never knew   | .          | ExecutionNotFound | Fail          | unknown | no      | 0     | ExecutionNotFound
crew: fails        | .          | ExecutionFailed   | Fail          | ended   | no      | 0     | ExecutionFailed
crew: fails        | soft_fail  | ExecutionFailed   | Skip          | ended   | no      | 0     | ExecutionFailed
crew: fails        | never_fail | ExecutionFailed   | Skip          | ended   | no      | 0     | ExecutionFailed
crew: forgets      | .          | ExecutionUnknown  | Fail          | running | no      | 0     | ExecutionUnknown
crew: forgets      | soft_fail  | ExecutionUnknown  | Skip          | running | no      | 0     | ExecutionUnknown
timeout: over      | .          | WaitedTooLong     | SensorTimeout | running | no      | 0     | reattaches
timeout: over      | soft_fail  | WaitedTooLong     | Skip          | running | no      | 0     | reattaches
timeout: over      | never_fail | WaitedTooLong     | Skip          | running | no      | 0     | reattaches
time limit: over   | .          | WaitedTooLong     | TaskTimeout   | running | yes     | 0     | reattaches
time limit: over   | soft_fail  | WaitedTooLong     | Skip          | running | no      | 0     | reattaches
time limit: over   | never_fail | WaitedTooLong     | Skip          | running | no      | 0     | reattaches
status: 401        | .          | WatchBroken       | Fail          | running | no      | 0     | reattaches
status: 401        | soft_fail  | WatchBroken       | Skip          | running | no      | 0     | reattaches
status: 500        | .          | LostContact       | -             | running | yes     | 0     | reattaches
status: 500        | soft_fail  | LostContact       | -             | running | yes     | 0     | reattaches
status: 500        | never_fail | LostContact       | Skip          | running | no      | 0     | reattaches
output: misfit     | .          | InvalidOutput     | Fail          | ended   | no      | 0     | reattaches
result: forgotten  | .          | ExecutionUnknown  | Fail          | ended   | no      | 0     | ExecutionUnknown
result: 500        | .          | LostContact       | -             | ended   | yes     | 0     | reattaches
"""

COST = {Cost.NONE: "none", Cost.RUNNING: "running", Cost.ENDED: "ended", Cost.UNKNOWN: "unknown"}
EXCEPTIONS: dict[str, type[BaseException]] = {
    "Fail": AirflowFailException,
    "Skip": AirflowSkipException,
    "SensorTimeout": AirflowSensorTimeout,
    "TaskTimeout": AirflowTaskTimeout,
    "Exception": AirflowException,
}
NOT_RETRIED = (AirflowFailException, AirflowSkipException, AirflowSensorTimeout)
LIST = Scenario(tasks=(ScenarioTask(name="writing_task", output='["Prose."]'),), inputs=())
LARGE = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=3600, output="x" * 70_000),), inputs=())
BASE: dict[str, dict[str, Any]] = {
    "kickoff": {"inputs": INPUTS},
    "run": {"inputs": INPUTS, "poll_interval": 0.02, "max_outage": 0.2},
    "sensor": {"poke_interval": 0.02, "max_outage": 0.2},
}
KINDS = {"kickoff": CrewKickoffOperator, "run": CrewRunOperator, "sensor": CrewExecutionSensor}


def name_of(error: Any) -> str:
    """Return the name of an error as callers of this package know it."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ != ends.__name__).__name__.removeprefix(
        "Airflow"
    )


def breaks(_: Any) -> Any:
    raise RuntimeError("a validator of your own")


class Outcome(NamedTuple):
    """What is known when a task has ended, and what comes next."""

    error: str
    airflow: str
    cost: str
    retried: str
    taken: str
    next: str


class Stage:
    """One task, its crew, and the trouble that ends it."""

    def __init__(
        self, kind: str, crew: WatchedService, patch: pytest.MonkeyPatch, store: Any = None, retries: int = 1
    ) -> None:
        self.kind, self.crew, self.monkeypatch, self.store, self.retries = kind, crew, patch, store, retries
        self.each_look_takes: Callable[[float], None] = lambda _: None
        self.fixed: dict[str, Any] = {}
        self.options = dict(BASE[kind])
        self.at_begin: Callable[[Any], None] = lambda _: None
        self.held: HeldAnswer | None = None
        """Answer of the crew during which execution_timeout passes."""
        self.result_trouble: Callable[[Stage], None] | None = None
        self._connection = os.environ[CONNECTION]
        self.task = Task(self._operator, store=store, retries=retries)

    def _operator(self) -> Any:
        operator = KINDS[self.kind](task_id="crew", **self.options, **self.fixed)
        self.at_begin(operator)
        return operator

    def outcome(self) -> Outcome:
        before = len(self.crew.kickoffs)
        error: Any = None
        try:
            self._attempt()
        except BaseException as ended:  # noqa: BLE001 - to compare them all
            error = ended
        taken = len(self.crew.kickoffs) - before
        failure = getattr(error, "failure", error)
        kind = next((name for name, each in EXCEPTIONS.items() if isinstance(error, each)), "-")
        retried = not isinstance(error, NOT_RETRIED)
        cost = COST[error.cost] if hasattr(error, "cost") else "-"
        known = name_of(failure), kind, cost, "yes" if retried else "no", str(taken)
        return Outcome(*known, self._next(retried=retried and self.retries > 0))

    def _attempt(self) -> None:
        if self.result_trouble is None:
            with self._alarm():
                poked(self.task)
            return
        waiting = self.task.deferred()
        event = asyncio.run(fired(self.task.revived(waiting)))
        assert "result" not in event, "the task itself reads it"
        self.result_trouble(self)
        self.task.resume(waiting, event)

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        """Let execution_timeout pass while the crew holds an answer back, if it does."""
        held, rung, over = self.held, threading.Event(), threading.Event()
        if held is None:
            yield
            return

        def ring(*_: object) -> None:
            rung.set()
            raise AirflowTaskTimeout("Timeout")

        def ring_while_held() -> None:
            while not (held.is_held or over.wait(0.02)):
                pass
            while not (over.is_set() or rung.wait(0.1)):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            held.release()

        before = signal.signal(signal.SIGALRM, ring)
        watcher = threading.Thread(target=ring_while_held)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            signal.signal(signal.SIGALRM, before)

    def _next(self, *, retried: bool) -> str:
        self._heal()
        if not retried:
            self.task.clear()
        before = len(self.crew.kickoffs)
        try:
            poked(self.task)
        except BaseException as error:  # noqa: BLE001 - to compare them all
            return name_of(getattr(error, "failure", error))
        return "kicks off" if len(self.crew.kickoffs) > before else "reattaches"

    def _heal(self) -> None:
        self.crew.faults.clear()
        self.crew.after = lambda _: None
        self.crew.scenario = QUICK
        self.monkeypatch.setenv(CONNECTION, self._connection)
        self.options = dict(BASE[self.kind]) | {
            name: given for name, given in self.options.items() if name == "kickoff_id"
        }
        self.at_begin = lambda _: None
        self.held, self.result_trouble = None, None
        if self.store is not None:
            self.store.breaks_at = lambda _: False
        for kickoff in self.crew.kickoffs:
            with suppress(LookupError):  # the crew may have forgotten it
                self.crew.finish(kickoff.kickoff_id)


def answers(stage: Stage, call: str, trouble: str) -> None:
    """Spoil a call until the trouble is over: a status, or what is wrong with the answer."""
    faults: Any = stage.crew.faults
    extent = {"on": call, "times": 999}
    taken = {"after_taken": True} if call == "kickoff" else {}
    match trouble:
        case "reset":
            faults.reset(**extent, **taken)
        case "too large":
            faults.huge(80_000_000, **extent)
        case _:
            faults.answer(int(trouble), **extent, **(taken if trouble >= "5" else {}))


def forget(stage: Stage) -> None:
    stage.crew.forget(stage.crew.kickoffs[-1].kickoff_id)


def end_large(stage: Stage, trouble: Callable[[Stage], None]) -> None:
    """Let the crew complete after the first poll, with a result that the trigger leaves to the task."""
    crew = stage.crew
    crew.scenario, stage.result_trouble = LARGE, trouble
    crew.at_look(1, lambda: crew.finish(crew.kickoffs[-1].kickoff_id))


def prepare(stage: Stage, scene: str) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
    """Set the scene. ``inputs: 503`` means that the crew answers 503 to GET /inputs."""
    crew, options = stage.crew, stage.options
    call, _, trouble = scene.partition(": ")
    match scene:
        case "connection: none":
            stage.monkeypatch.delenv(CONNECTION)
        case "connection: daily limit":
            stage.monkeypatch.setenv(CONNECTION, f"{crew.connection_uri}?max_kickoffs_per_day=0")
        case "input: misspelled":
            options["inputs"] = {"topic": "harbours", "audiense": "sailors"}
        case "output_type: wrong":
            options["output_type"] = "no.such.Type"
        case "crew: unreachable":
            crew.faults.refuse()
        case "store: unreadable" | "store: not writable":
            call = "get" if "read" in scene else "set"
            stage.store.breaks_at = lambda asked: asked == call
        case "task: told to end":
            stage.at_begin = lambda operator: operator.on_kill()
        case "task: extra attempt":
            stage.task.ti.try_number = 2
        case "time limit: at inputs" | "time limit: at kickoff":
            stage.held = HeldAnswer(on=scene.rpartition(" ")[2])
            crew.faults.add(stage.held)
        case "crew: fails":
            crew.scenario = FAILING
        case "crew: forgets":
            crew.at_look(1, lambda: forget(stage))
        case "crew: never knew":
            options["kickoff_id"] = "never-known"
        case "crew: moved":
            stage.store.set("crew_kickoff", stage.store.kickoff | {"address": "https://else.example"})
            forget(stage)
        case "kickoff_id: empty":
            options["kickoff_id"] = ""
        case "timeout: over":
            options["timeout"] = 60
            stage.each_look_takes(61)
        case "time limit: over":
            options["execution_timeout"] = timedelta(seconds=60)
            stage.each_look_takes(61)
        case "output: misfit" | "output: misfit, to retry":
            crew.scenario = LIST
            options["output_type"] = dict
        case "output: unchecked" | "output: unchecked, to retry":
            crew.scenario = LIST
            options["output_type"] = Annotated[Any, BeforeValidator(breaks)]
        case "result: forgotten":
            end_large(stage, forget)
        case _ if call == "result":
            end_large(stage, lambda stage: answers(stage, "status", trouble))
        case _:
            answers(stage, call, trouble)
    if scene.endswith("to retry"):
        options["on_invalid_output"] = "retry"


def leave_record(stage: Stage, earlier: str) -> None:
    """Store what an earlier attempt has left, and clear the task."""
    kept: dict[str, Any] = {"max_tries": stage.task.ti.max_tries, "kicked_off_at": time.time() - 3600}
    match earlier:
        case "uncertain":
            kept["reported"] = True
        case "unknown":
            kept |= {"kickoff_id": "forgotten", "kicked_off_at": time.time() - 8 * 86_400}
        case _:
            stage.crew.scenario = {"running": SLOW, "completed": QUICK, "failed": FAILING}[earlier]
            kept["kickoff_id"] = stage.crew.take(INPUTS, None, {})
            kept["end"] = None if earlier == "running" else earlier
            stage.crew.scenario = QUICK
    stage.store.set("crew_kickoff", kept)
    stage.task.ti.try_number = 1
    stage.task.clear()


def rows(table: str) -> list[list[str]]:
    lines = table.strip().splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")] for line in lines if line.strip()]


def expected(row: list[str]) -> Outcome:
    return Outcome(*row[-len(Outcome._fields) :])


@pytest.fixture(autouse=True)
def short_limits(timing) -> None:
    timing(not_found_grace=0.05, longest_rejection=0.1, unknown_poll=0.01)


def named(row: list[str]) -> str:
    return ", ".join(cell for cell in row[: -len(Outcome._fields)] if cell != ".")


def in_modes(table: str, modes: Callable[[list[str]], Iterable[str]]) -> pytest.MarkDecorator:
    """Return a parametrization by the rows of a table, each in the modes that it can happen in."""
    cases = [(row, mode) for row in rows(table) for mode in modes(row)]
    return pytest.mark.parametrize(("row", "mode"), cases, ids=[f"{named(row)}, {mode}" for row, mode in cases])


# A run has no retries and a kickoff has one, because an exception does not depend on them.
@in_modes(KICKOFFS, lambda row: ["run"] if "output_type" in row[0] else ["run", "kickoff"])
def test_kickoff_ends_as_the_table_says(live_crew, monkeypatch, row, mode):
    scene, choice, stored, *_ = row
    has_store = stored == "yes" if stored != "." else mode == "run"
    store = TaskStateStore() if has_store else None
    stage = Stage(mode, live_crew, monkeypatch, store, retries=int(mode == "kickoff"))
    stage.fixed["on_uncertain_kickoff"] = "fail" if choice == "." else choice
    prepare(stage, scene)

    assert stage.outcome() == expected(row)


@in_modes(EARLIER, lambda _: ["run", "kickoff"])
def test_later_kickoff_ends_as_the_table_says(live_crew, monkeypatch, row, mode):
    scene, earlier, *_ = row
    stage = Stage(mode, live_crew, monkeypatch, TaskStateStore())
    leave_record(stage, earlier)
    prepare(stage, scene)

    assert stage.outcome() == expected(row)


@in_modes(WAITS, lambda row: ["deferred"] if row[0].startswith("result") else ["in the worker", "deferred"])
def test_run_ends_as_the_table_says(live_crew, monkeypatch, each_look_takes, row, mode):
    scene, stored, *_ = row
    is_deferred = mode == "deferred"
    has_store = stored == "yes" if stored != "." else is_deferred
    stage = Stage("run", live_crew, monkeypatch, TaskStateStore() if has_store else None, retries=int(is_deferred))
    stage.fixed["deferrable"] = is_deferred
    stage.each_look_takes = each_look_takes
    live_crew.scenario = SLOW
    prepare(stage, scene)

    assert stage.outcome() == expected(row)


MODES: dict[str, dict[str, Any]] = {
    "deferred": {"deferrable": True},
    "poke": {"mode": "poke"},
    "reschedule": {"mode": "reschedule"},
}


def sensor_modes(row: list[str]) -> list[str]:
    """Return every mode, but only one for a sensor that is skipped."""
    scene, option, *_ = row
    if scene.startswith("result"):
        return ["deferred"]
    if option != ".":
        return ["deferred" if option == "soft_fail" else "poke"]
    return [mode for mode in MODES if mode != "reschedule" or not scene.startswith("time limit")]


@in_modes(SENSORS, sensor_modes)
def test_sensor_ends_as_the_table_says(live_crew, monkeypatch, each_look_takes, row, mode):
    scene, option, *_ = row
    stage = Stage("sensor", live_crew, monkeypatch, TaskStateStore())
    stage.fixed |= MODES[mode] | ({} if option == "." else {option: True})
    stage.each_look_takes = each_look_takes
    live_crew.scenario = SLOW
    prepare(stage, scene)
    stage.options.setdefault("kickoff_id", live_crew.take(INPUTS, None, {}))

    assert stage.outcome() == expected(row)


@pytest.mark.parametrize("policy", [None, object()])
def test_next_step_names_a_retry_unless_a_policy_may_forbid_it(live_crew, store, policy):
    live_crew.scenario = FAILING
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS), store=store, retries=1)
    task.ti.task = SimpleNamespace(retry_policy=policy)

    with pytest.raises(ends.ExecutionFailed) as caught:
        task.run()

    assert ("Retrying" in caught.value.next_step) == (policy is None)
