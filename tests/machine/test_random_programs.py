"""
Random programs: a task of any kind with random options, random faults, and users who act.

A failure prints the program, and the seed that plays it again: ``CREW_MACHINE_SEED=… make test-machine``.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.operators.base import CrewTask
from airflow_provider_crew.task.stop import Pulse
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.integration.attempts import Task, patch_airflow
from tests.machine import virtual
from tests.machine.deeds import COURSES, DEEDS, PLANS, carry_out
from tests.machine.world import World
from tests.promises.kinds import KINDS
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Kickoff records need Airflow 3.3.")

_BOOLS = st.sampled_from([None, True])
_OPTIONS: dict[str, Any] = {
    "cancel_on_kill": _BOOLS,
    "cancel_on_timeout": _BOOLS,
    "timeout": st.sampled_from([3600.0, 900.0, 90.0]),
    "max_outage": st.sampled_from([600.0, 60.0, None]),
    "poll_interval": st.sampled_from([None, 15.0]),
    "execution_timeout": st.sampled_from([None, None, timedelta(seconds=300)]),
    "output_type": st.sampled_from([None, None, dict[str, int | str], list[int]]),
}
_OF_A_RUN = {"on_invalid_output": st.sampled_from(["fail", "retry"])}
_OF_ONE_EXECUTION = {"human_input": st.booleans(), "validate_inputs": st.booleans()}
_OF_A_BATCH = {
    "rows": st.integers(1, 4),
    "max_active": st.integers(1, 3),
    "row_timeout": st.sampled_from([None, 60.0]),
    "max_failed": st.sampled_from([None, 0]),
    "rerun": st.sampled_from(["failed", "failed", "all"]),
}
_MOST_CLEARS = 4


class Machine(RuleBasedStateMachine):
    """One task, its crew, and everybody who may act."""

    kind: str
    world_of: Callable[[], World]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).world_of()

    @initialize(options=st.data(), course=COURSES, retries=st.integers(0, 2), is_mapped=st.booleans())
    def write_dag(self, *, options: Any, course: Any, retries: int, is_mapped: bool) -> None:
        is_batch = self.kind.endswith("batch")
        known = _OPTIONS | (_OF_A_BATCH if is_batch else _OF_ONE_EXECUTION)
        known |= _OF_A_RUN if self.kind.endswith("run") else {}
        world = self.world
        world.options = KINDS[self.kind](world, **options.draw(st.fixed_dictionaries(known))).options
        carry_out(world, *course)
        self.tasks = [*world.tasks.values()]
        for task in self.tasks:
            task.retries = task.ti.max_tries = retries
            task.ti.map_index = 0 if is_mapped and not is_batch else -1
        world.running = self.tasks[0]

    # Airflow and its users.

    @property
    def due(self) -> Task | None:
        for task in self.tasks:
            if task.is_due or task.state != "success":
                return task if task.is_due else None
        return None

    @precondition(lambda self: self.due)
    @rule(plan=PLANS)
    def attempt(self, plan: Any = ()) -> None:
        task, world = self.due, self.world
        assert task
        world.has_trouble = world.has_trouble or bool(plan)
        for kind, *what in plan:
            carry_out(world, kind, *what)
        world.running, started = task, len(world.facts)
        outcome = task.attempt()
        world.check(outcome, started)

    @precondition(lambda self: any(not task.is_due for task in self.tasks))
    @rule(keeps=st.sampled_from([True, True, False]), both=st.booleans())
    def clear(self, *, keeps: bool, both: bool) -> None:
        cleared = [task for task in self.tasks if not task.is_due]
        for task in cleared if both else cleared[-1:]:
            task.clear(keeps=keeps)

    @rule(deed=st.sampled_from([name for name in DEEDS if not name.startswith(("the process", "a user"))]))
    def now(self, deed: str) -> None:
        self.world.has_trouble = True
        DEEDS[deed](self.world)

    @invariant()
    def nothing_is_broken(self) -> None:
        self.world.check_known()
        assert not self.world.broken, self.world.broken

    def teardown(self) -> None:
        try:
            if hasattr(self, "tasks"):
                self._end()
        finally:
            shutil.rmtree(self.world.folder, ignore_errors=True)

    def _end(self) -> None:
        world = self.world
        world.finish_all()
        world.options["output_type"] = None
        for _ in range(_MOST_CLEARS):
            while self.due:
                self.attempt()
                self.nothing_is_broken()
            if all(task.state == "success" for task in self.tasks):
                return
            self.clear(keeps=True, both=True)
        raise AssertionError("The task never succeeds, although nothing is wrong any more.")


class _Handler(logging.Handler):
    def __init__(self, current: list[World]) -> None:
        super().__init__()
        self._current = current

    def emit(self, record: logging.LogRecord) -> None:
        self._current[-1].show(record.getMessage())


@pytest.fixture
def world_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, timing: Callable[..., None]) -> Callable[[], World]:
    """Return a function that returns a new world."""
    timing(longest_back_off=0.0, longest_retry_after=0.0, batch_look=5.0)
    clock, numbers, log = virtual.Clock(), itertools.count(), logging.getLogger("airflow_provider_crew")
    current: list[World] = []

    def state(task_id: str) -> str:
        current[-1].airflow_answers()
        return current[-1].tasks[task_id].state

    def send(request: ReceivedRequest) -> Answer:
        return current[-1].send(request)

    def at_step(original: Any) -> Callable[..., Any]:
        def method(*given: Any, **named: Any) -> Any:
            with current[-1].seam("files"):
                return original(*given, **named)

        return method

    patch = monkeypatch.setattr
    patch("airflow_provider_crew.api_server.open_required_action", lambda *_, **__: None)
    patch("airflow_provider_crew.triggers.watching.close_required_action", lambda *_: None)
    patch("airflow_provider_crew.triggers.watching.read_required_action", lambda _: None)
    patch("airflow_provider_crew.task.stop.pulse_of", lambda _: Pulse(lambda: current[-1].suspended))
    for name in ("claim", "write", "append", "delete", "compact"):
        patch(ResultFiles, name, at_step(getattr(ResultFiles, name)))
    for kind in (CrewTask, CrewHook, CrewExecutionTrigger):
        patch(kind, "log", log, raising=False)
    patch(log, "propagate", False)
    patch(log, "handlers", [_Handler(current)])
    log.setLevel(logging.INFO)
    patch_airflow(monkeypatch, state, lambda task_id: current[-1].tasks[task_id])
    virtual.install(monkeypatch, clock, send)

    def world_of() -> World:
        clock.forget()
        clock.now = virtual.START
        current[:] = [World(clock, tmp_path / f"{next(numbers)}")]
        return current[0]

    return world_of


SETTINGS = hypothesis.settings(
    max_examples=int(os.environ.get("CREW_MACHINE_EXAMPLES", "20")),
    stateful_step_count=8,
    derandomize="CREW_MACHINE_SEED" not in os.environ,
    deadline=None,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_random_programs(kind, world_of):
    machine = type("Machine", (Machine,), {"kind": kind, "world_of": staticmethod(world_of)})
    if seed := os.environ.get("CREW_MACHINE_SEED"):
        machine = hypothesis.seed(int(seed))(machine)
    run_state_machine_as_test(machine, settings=SETTINGS)
