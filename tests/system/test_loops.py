"""Crews in task loops: each iteration has its own execution, kickoff record and XComs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.airflow_runs import Run, eventually
from tests.supported import has

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not has("Task loops"), reason="Airflow has task loops from 3.4 on"),
]


class Loop:
    """A run of a loop whose executions the test completes."""

    def __init__(self, run: Run, crew: Any) -> None:
        self.run = run
        self.crew = crew
        self.path = run.path("drafts.write")

    @property
    def kickoffs(self) -> list[Any]:
        return self.run.kickoffs(self.crew)

    def execution(self, number: int) -> str:
        """Wait for the nth kickoff, and return its kickoff ID."""
        return str(eventually(lambda: len(self.kickoffs) > number and self.kickoffs[number].kickoff_id))

    def task(self, iteration: int) -> dict[str, Any]:
        found = self.run.tasks("drafts.write")
        return next((ti for ti in found if ti["region_index"] == iteration), {})

    def wait_for(self, iteration: int, state: str, *, tries: int = 1) -> None:
        def there() -> bool:
            task = self.task(iteration)
            return bool(task) and (task["state"], task["try_number"]) == (state, tries)

        eventually(there)

    def address(self, iteration: int) -> dict[str, Any]:
        task = self.task(iteration)
        return {"region_id": task["region_id"], "region_index": task["region_index"]}

    def xcom(self, iteration: int, key: str = "return_value") -> Any:
        where = self.address(iteration) | {"deserialize": True, "stringify": False}
        return self.run.airflow.api.get(f"{self.path}/xcomEntries/{key}", **where)["value"]

    def record(self, iteration: int) -> Any:
        kept = self.run.airflow.api.get(f"{self.path}/state-store/crew_kickoff", **self.address(iteration))
        return kept["value"]


@pytest.fixture(scope="module")
def begin(start, crews) -> Callable[[str], Loop]:
    return lambda dag_id: Loop(start(dag_id), crews["slow"])


@pytest.fixture(scope="module")
def deferred(begin) -> Iterator[Loop]:
    """Return a loop with two completed iterations and a deferred one."""
    loop = begin("loops_deferred")
    for number in range(2):
        loop.crew.finish(loop.execution(number))
    loop.execution(2)
    loop.wait_for(2, "deferred")
    yield loop
    for execution in loop.kickoffs:
        loop.crew.finish(execution.kickoff_id)
    loop.run.wait()


def test_each_iteration_has_its_own_execution(deferred):
    ids = [deferred.execution(number) for number in range(3)]

    assert len({*ids}) == len(deferred.kickoffs) == 3
    assert [each.meta["airflow"]["iteration"] for each in deferred.kickoffs] == [0, 1, 2]
    assert [each.inputs["topic"] for each in deferred.kickoffs] == [f"ferries, draft {n}" for n in range(3)]
    assert [deferred.record(number)["kickoff_id"] for number in range(3)] == ids
    assert [deferred.xcom(number, "kickoff_id") for number in range(3)] == ids
    assert [deferred.xcom(number)["kickoff_id"] for number in range(2)] == ids[:2]
    # Airflow reports the state of the latest iteration, which has not ended.
    assert [deferred.record(number)["delivered"] for number in range(3)] == [True, True, False]


def test_killed_iteration_reattaches_to_its_own_execution(begin):
    loop = begin("loops_sync")
    loop.crew.finish(loop.execution(0))
    second = loop.execution(1)
    loop.wait_for(1, "running")
    os.kill(loop.task(1)["pid"], signal.SIGKILL)
    loop.wait_for(1, "running", tries=2)
    loop.crew.finish(second)
    loop.crew.finish(loop.execution(2))

    assert loop.run.wait() == "success"
    assert [loop.task(number)["try_number"] for number in range(3)] == [1, 2, 1]
    assert [each.kickoff_id for each in loop.kickoffs] == [loop.xcom(n)["kickoff_id"] for n in range(3)]
