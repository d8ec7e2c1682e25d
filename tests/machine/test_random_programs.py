"""
Random programs: a task of any kind with random options, random faults, and users who act.

A failure prints the program, and the seed that plays it again: ``CREW_MACHINE_SEED=… make test-machine``.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.operators.base import CrewTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.task.stop import Pulse
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.machine import virtual
from tests.machine.airflow import Task
from tests.machine.deeds import COURSES, DEEDS, PLANS, carry_out
from tests.machine.world import World
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Kickoff records need Airflow 3.3.")

KINDS = ("run", "deferred run", "sensor", "deferred sensor", "rescheduled sensor", "batch", "deferred batch")

_BOOLS = st.sampled_from([None, True])
_OPTIONS = {
    "on_uncertain_kickoff": st.sampled_from(["fail", "fail", "retry"]),
    "cancel_on_kill": _BOOLS,
    "cancel_on_timeout": _BOOLS,
    "timeout": st.sampled_from([3600.0, 900.0, 90.0]),
    "max_outage": st.sampled_from([600.0, 60.0, None]),
    "poll_interval": st.sampled_from([None, 15.0]),
    "execution_timeout": st.sampled_from([None, None, timedelta(seconds=300)]),
    "output_type": st.sampled_from([None, None, dict[str, int | str], list[int]]),
}
_OF_A_RUN = {
    "human_input": _BOOLS,
    "on_invalid_output": st.sampled_from(["fail", "retry"]),
    "validate_inputs": st.booleans(),
}
_OF_A_BATCH = {
    "rows": st.integers(1, 4),
    "max_active": st.integers(1, 3),
    "row_timeout": st.sampled_from([None, 60.0]),
    "max_failed": st.sampled_from([None, 0]),
    "rerun": st.sampled_from(["failed", "failed", "all"]),
}
_OF_A_KICKOFF = frozenset({"on_uncertain_kickoff", "validate_inputs"})


_MOST_CLEARS = 4


class Machine(RuleBasedStateMachine):
    """One task, its crew, and everybody who may act."""

    kind: str
    world_of: Callable[[], World]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).world_of()
        self.is_batch = self.kind.endswith("batch")

    @initialize(options=st.data(), course=COURSES, retries=st.integers(0, 2), is_mapped=st.booleans())
    def write_dag(self, *, options: Any, course: Any, retries: int, is_mapped: bool) -> None:
        known = _OPTIONS | (_OF_A_BATCH if self.is_batch else _OF_A_RUN)
        world = self.world
        world.options = options.draw(st.fixed_dictionaries(known))
        carry_out(world, *course)
        map_index = 0 if is_mapped and not self.is_batch else -1
        named: dict[str, Any] = {"world": world, "retries": retries, "map_index": map_index}
        self.tasks = [Task(make=self._operator, **named)]
        if self.kind.endswith("sensor"):
            self.tasks.insert(0, Task(make=self._kickoff, task_id="kickoff", **named))
            self.tasks[1].watched = self._kickoff_id
        world.tasks = {task.task_id: task for task in self.tasks}
        world.running = self.tasks[0]

    def _kickoff_id(self) -> str:
        return str(json.loads(self.tasks[0].xcoms.get("return_value", "null")))

    def _kickoff(self) -> Any:
        own = {name: value for name, value in self.world.options.items() if name in _OF_A_KICKOFF}
        return CrewKickoffOperator(task_id="kickoff", inputs={"topic": "a"}, **own)

    def _operator(self) -> Any:
        own = dict(self.world.options)
        deferrable = self.kind.startswith("deferred")
        if self.is_batch:
            rows = [{"topic": f"{number}"} for number in range(own.pop("rows"))]
            own |= {"inputs": rows, "key": "topic", "result_path": str(self.world.folder)}
            return CrewBatchOperator(task_id="crew", deferrable=deferrable, **own)
        if self.kind.endswith("sensor"):
            own = {name: value for name, value in own.items() if name not in {*_OF_A_KICKOFF, "on_invalid_output"}}
            own |= {"poke_interval": own.pop("poll_interval"), "human_input": bool(own["human_input"])}
            mode = "reschedule" if self.kind.startswith("resch") else "poke"
            return CrewExecutionSensor(
                task_id="crew", kickoff_id=self._kickoff_id(), mode=mode, deferrable=deferrable, **own
            )
        return CrewRunOperator(task_id="crew", inputs={"topic": "a"}, deferrable=deferrable, **own)

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
        world.check(task, outcome, started)

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
            self.world.close()

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


def _at_step(original: Any, current: list[World]) -> Callable[..., Any]:
    def method(*given: Any, **named: Any) -> Any:
        with current[-1].seam("files"):
            return original(*given, **named)

    return method


@contextmanager
def _stage(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[Callable[[], World]]:
    """Provide a function that returns a new world."""
    clock = virtual.Clock()
    numbers = itertools.count()
    current: list[World] = []
    log = logging.getLogger("airflow_provider_crew")

    def state(task_id: str) -> str:
        current[-1].airflow_answers()
        return current[-1].tasks[task_id].state

    virtual.patch_airflow(patch, state, lambda task_id: current[-1].tasks[task_id])
    patch.setattr("airflow_provider_crew.api_server.open_required_action", lambda *_, **__: None)
    patch.setattr("airflow_provider_crew.triggers.watching.close_required_action", lambda *_: None)
    patch.setattr("airflow_provider_crew.triggers.watching.read_required_action", lambda _: None)
    patch.setattr("airflow_provider_crew.task.stop.pulse_of", lambda _: Pulse(lambda: current[-1].suspended))
    for name in ("claim", "write", "append", "delete", "compact"):
        patch.setattr(ResultFiles, name, _at_step(getattr(ResultFiles, name), current))
    for kind in (CrewTask, CrewHook, CrewExecutionTrigger):
        patch.setattr(kind, "log", log, raising=False)
    patch.setattr(log, "propagate", False)
    log.setLevel(logging.INFO)

    def world_of() -> World:
        clock.forget()
        clock.now = virtual.START
        world = World(clock, folder / f"{next(numbers)}")
        current[:] = [world]
        log.addHandler(world.handler)
        return world

    def send(request: Any) -> Any:
        return current[-1].send(request)

    with virtual.installed(patch, clock, send):
        yield world_of


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
def test_random_programs(kind, monkeypatch, tmp_path, timing):
    timing(longest_back_off=0.0, longest_retry_after=0.0, batch_look=5.0)
    with _stage(monkeypatch, tmp_path) as world_of:
        machine = type("Machine", (Machine,), {"kind": kind, "world_of": staticmethod(world_of)})
        if seed := os.environ.get("CREW_MACHINE_SEED"):
            machine = hypothesis.seed(int(seed))(machine)
        run_state_machine_as_test(machine, settings=SETTINGS)
