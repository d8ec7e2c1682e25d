"""@task.crew: the function gives the inputs, the task returns the result."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.client.errors import InvalidInputs, WaitedTooLong
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from tests.integration.tasks import SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def decorated(calls) -> Any:
    def brief(day: str, ti: Any = None) -> dict[str, Any]:
        calls.append(day)
        return {"topic": f"{{{{ news }}}} of {day}", "audience": ti.task_id}

    def make(**options: Any) -> Any:
        crew: Any = crew_task(task_id="crew", poll_interval=0.02, **options)(brief)
        return crew("monday").operator

    return make


def test_decorated_function_is_called_once_for_the_inputs(live_crew, decorated, calls, store):
    result = Task(decorated, store=store).run()

    assert calls == ["monday"]
    assert live_crew.kickoffs[0].inputs == {"topic": "{{ news }} of monday", "audience": "crew"}
    assert result["output"].startswith("Briefing: {{ news }} of monday")


@pytest.mark.parametrize("deferrable", [False, True])
def test_decorated_function_is_not_called_to_reattach(live_crew, decorated, calls, store, deferrable):
    live_crew.scenario = SLOW
    started = Task(lambda: decorated(timeout=0.2, deferrable=deferrable), store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        started.run()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert started.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert calls == ["monday"]


def test_decorated_function_without_inputs_sends_no_request(live_crew):
    crew: Any = crew_task(task_id="crew")
    started = Task(lambda: crew(lambda: "harbours")().operator)

    with pytest.raises(CrewTaskFailed, match="inputs") as caught:
        started.run()

    assert isinstance(caught.value.failure, InvalidInputs)
    assert live_crew.calls == []


def test_decorated_task_has_no_multiple_outputs():
    def brief() -> dict[str, str]:
        return {}

    crew: Any = crew_task(task_id="crew")(brief)
    assert crew().operator.multiple_outputs is False


def test_rendered_inputs_are_those_of_the_function(live_crew, decorated):
    operator = decorated()
    Task(lambda: operator).run()

    assert operator.inputs == live_crew.kickoffs[0].inputs
    assert operator.overwrite_rtif_after_execution
