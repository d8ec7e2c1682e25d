"""@task.crew: the function gives the inputs, the task returns the result."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.tasks.ends import CrewTaskFailed
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


def test_a_decorated_function_is_called_once_and_gives_the_inputs(live_crew, decorated, calls, store):
    result = Task(decorated, store=store).run()

    assert calls == ["monday"]
    assert live_crew.kickoffs[0].inputs == {"topic": "{{ news }} of monday", "audience": "crew"}
    assert result["output"].startswith("Briefing: {{ news }} of monday")


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_decorated_function_is_not_called_by_a_try_that_goes_on_with_an_execution(
    live_crew, decorated, calls, store, deferrable
):
    live_crew.scenario = SLOW
    started = Task(lambda: decorated(timeout=0.2, deferrable=deferrable), store=store, retries=1)
    with pytest.raises(Exception, match="still going"):
        started.run()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert started.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert calls == ["monday"]


def test_a_decorated_function_that_returns_no_inputs_starts_nothing(live_crew):
    crew: Any = crew_task(task_id="crew")
    started = Task(lambda: crew(lambda: "harbours")().operator)

    with pytest.raises(CrewTaskFailed, match="inputs is of type str, and must be an object"):
        started.run()

    assert live_crew.calls == []


def test_the_result_of_a_decorated_task_is_one_value_whatever_its_annotation_says():
    def brief() -> dict[str, str]:
        return {}

    crew: Any = crew_task(task_id="crew")(brief)
    assert crew().operator.multiple_outputs is False


def test_the_rendered_inputs_are_what_the_function_has_returned(live_crew, decorated):
    operator = decorated()
    Task(lambda: operator).run()

    assert operator.inputs == live_crew.kickoffs[0].inputs
    assert operator.overwrite_rtif_after_execution
