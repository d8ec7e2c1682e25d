"""What a result has: structured output, the inputs of a decorated function, and numbers of any size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airflow_provider_crew.client.errors import WaitedTooLong
from airflow_provider_crew.client.watch import WatchState
from airflow_provider_crew.decorators.crew import crew_task
from tests.integration.operators import run_task
from tests.integration.tasks import SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.mark.parametrize("deferrable", [False, True])
def test_decorated_function_is_called_once_for_the_inputs(live_crew, store, deferrable):
    calls, operators = [], []

    def brief(day: str, ti: Any = None) -> dict[str, Any]:
        calls.append(day)
        return {"topic": f"{{{{ news }}}} of {day}", "audience": ti.task_id}

    def make() -> Any:
        crew: Any = crew_task(task_id="crew", poll_interval=0.02, timeout=0.2, deferrable=deferrable)
        operators.append(crew(brief)("monday").operator)
        return operators[-1]

    live_crew.scenario = SLOW
    started = Task(make, store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        started.run()
    live_crew.finish(live_crew.ids[0])

    assert started.run()["kickoff_id"] == live_crew.ids[0]
    assert calls == ["monday"]
    assert live_crew.kickoffs[0].inputs == {"topic": "{{ news }} of monday", "audience": "crew"}
    # Airflow shows them as the rendered template.
    assert operators[0].inputs == live_crew.kickoffs[0].inputs
    assert operators[0].overwrite_rtif_after_execution
    assert not operators[0].multiple_outputs, "Airflow would split the result"


WIDE = [2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64, 10**400, 1e300, 1e309, -(2**64)]


@pytest.mark.parametrize("number", WIDE, ids=lambda number: f"{number:.3e}" if number < 1e308 else "huge")
@pytest.mark.parametrize("total", [{}, {"total": 0, "total_tasks": 0}], ids=["steps", "tasks"])
def test_wide_counter_stops_no_deferral(live_crew, total, number):
    progress = dict.fromkeys({"completed", "completed_tasks", "current", *total}, number)
    told = {"state": "STARTED", "status": "running", "progress": progress, "current_task": number}
    told |= {"last_executed_task": {"task_id": "a", "output": number, "execution_time": number}}
    told |= {"usage_metrics": {"total_tokens": number}, "execution_time": number}
    done = {"state": "SUCCESS", "result": "Done.", "usage_metrics": told["usage_metrics"]}
    live_crew.scenario = SLOW.model_copy(update={"statuses": (told, told, done)})
    task = run_task(live_crew, deferrable=True)

    waiting = task.deferred()
    stored = waiting.trigger.serialize()[1]
    event = task.event_of(waiting)
    result = task.resume(waiting, event)

    assert WatchState.recalled(stored["memory"]) is not None
    assert result["output"] == "Done."
    # A task tells its supervisor all of it in this format, which has no wider integers.
    assert msgspec.msgpack.encode([waiting.kwargs, stored, event, result, task.ti.xcoms, live_crew.xcoms.progress])
