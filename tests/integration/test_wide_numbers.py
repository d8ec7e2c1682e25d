"""Numbers of an answer on their way through Airflow: whatever carries a value holds 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.client.errors import MAX_INT, MIN_INT
from airflow_provider_crew.client.watch import WatchState
from tests.integration.operators import run_task
from tests.integration.tasks import SLOW, fired

pytest_plugins = ["tests.integration.task_fixtures"]

WIDE = [2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64, 10**400, 1e300, 1e309, -(2**64)]


def integers(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from integers(item)
    elif isinstance(value, int):
        yield value


def running(number: Any) -> dict[str, Any]:
    task = {"task_id": "a", "output": number, "execution_time": number}
    progress = {"completed": number, "completed_tasks": number, "current": number}
    return {
        "state": "STARTED",
        "status": "running",
        "progress": progress,
        "last_executed_task": task,
        "current_task": number,
        "usage_metrics": {"total_tokens": number},
        "execution_time": number,
    }


def assert_storable(*values: Any) -> None:
    assert [wide for wide in integers(values) if not MIN_INT <= wide <= MAX_INT] == []


@pytest.mark.parametrize("number", WIDE, ids=lambda number: f"{number:.3e}" if number < 1e308 else "huge")
@pytest.mark.parametrize("unit", ["steps", "tasks"])
async def test_wide_counter_stops_no_deferral(live_crew, unit, number):
    live_crew.scenario = SLOW
    told = running(number)
    if unit == "tasks":
        told["progress"] |= {"total": number, "total_tasks": number}
    task = run_task(live_crew, deferrable=True)

    def tell(request: Any) -> None:
        if request.operation == "kickoff":
            live_crew.set_status(live_crew.kickoffs[0].kickoff_id, told)

    live_crew.after = tell

    waiting = task.deferred()
    stored = waiting.trigger.serialize()[1]
    done = {"state": "SUCCESS", "result": "Done.", "usage_metrics": told["usage_metrics"]}
    live_crew.set_status(stored["kickoff_id"], told, done)
    event = await fired(task.revived(waiting))
    result = task.resume(waiting, event)

    assert WatchState.recalled(stored["memory"]) is not None
    assert result["output"] == "Done."
    assert_storable(waiting.kwargs, stored, event, result, task.ti.xcoms, live_crew.xcoms.progress)
