"""Asset event extras of a task's outlets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset

from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.operators import both_ways, run
from tests.integration.shown import ShownTask
from tests.integration.tasks import INPUTS, SLOW, fired, revived

pytest_plugins = ["tests.integration.task_fixtures"]

REPORT = Asset("crew://reports/ferries")
OTHER = Asset("crew://reports/harbours")
DEPLOYED = Scenario(dialect="deployed").without_waiting()


def told(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("kickoff_id", "usage", "execution_time")}


@both_ways
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_event_extra_has_execution_and_usage(live_crew, dialect, deferrable):
    live_crew.scenario = DEPLOYED.model_copy(update={"dialect": dialect})
    task = ShownTask(lambda: run(deferrable=deferrable), outlets=(REPORT, "no asset", OTHER))

    result = task.run()

    assert task.told(REPORT) == task.told(OTHER) == told(result)
    assert bool(result["usage"]) == (dialect == "deployed")


@both_ways
def test_event_holds_no_reserved_key_of_usage(live_crew, deferrable):
    live_crew.scenario = DEPLOYED.model_copy(update={"usage": {"__classname__": 1, "total_tokens": 7}})
    task = ShownTask(lambda: run(deferrable=deferrable), outlets=(REPORT,))

    task.run()

    assert task.told(REPORT)["usage"] == {"__classname___": 1, "total_tokens": 7}


def test_event_extras_of_kickoff_operator_and_sensor(live_crew):
    kickoff = ShownTask(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), outlets=(REPORT,))
    kickoff_id = kickoff.run()
    sensor = ShownTask(lambda: CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id), outlets=(REPORT,))

    result = sensor.run()

    assert kickoff.told(REPORT) == {"kickoff_id": live_crew.kickoffs[0].kickoff_id}
    assert sensor.told(REPORT) == told(result)


@both_ways
def test_event_extra_from_post_execute_takes_precedence(deferrable, live_crew):
    def note(context: Any, result: Any = None) -> None:
        context["outlet_events"][REPORT].extra = {"words": len(result["output"].split()), "usage": "mine"}

    task = ShownTask(lambda: run(deferrable=deferrable, post_execute=note), outlets=(REPORT,))

    result = task.run()

    words = len(result["output"].split())
    assert task.told(REPORT) == told(result) | {"words": words, "usage": "mine"}
    assert live_crew.kickoffs


@both_ways
def test_event_extra_from_the_function_survives_the_deferral(live_crew, deferrable):
    def brief(outlet_events: Any = None) -> dict[str, Any]:
        outlet_events[OTHER].extra = {"day": "monday"}
        return INPUTS

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, deferrable=deferrable)(brief)
    live_crew.scenario = SLOW if deferrable else DEPLOYED
    task = ShownTask(lambda: crew().operator, outlets=(REPORT, OTHER))

    if deferrable:
        waiting = task.deferred()
        assert task.told(OTHER) == {"day": "monday"}, "the result is added at the end"
        live_crew.finish(live_crew.kickoffs[0].kickoff_id)
        result = task.resume(waiting, asyncio.run(fired(revived(waiting.trigger))))
    else:
        result = task.run()

    assert task.told(REPORT) == told(result)
    assert task.told(OTHER) == told(result) | {"day": "monday"}


@pytest.mark.parametrize("put", [{"day": {1, 2}}, "no mapping", 7])
def test_unusable_event_extra_is_a_warning(live_crew, task_log, put):
    def brief(outlet_events: Any = None) -> dict[str, Any]:
        outlet_events[REPORT].extra = put
        return INPUTS

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, deferrable=True)(brief)
    live_crew.scenario = SLOW
    task = ShownTask(lambda: crew().operator, outlets=(REPORT,))
    waiting = task.deferred()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    result = task.resume(waiting, asyncio.run(fired(revived(waiting.trigger))))

    assert result["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert "asset event" in task_log.warnings
