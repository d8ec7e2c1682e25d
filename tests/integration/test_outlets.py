"""Asset event extras of a task's outlets."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset

from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.operators import both_ways, run
from tests.integration.pages import ROOT
from tests.integration.shown import ShownTask
from tests.integration.tasks import INPUTS, SLOW

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


@pytest.mark.parametrize("put", [{"day": "monday"}, {"day": {1, 2}}, "no mapping"], ids=str)
@both_ways
def test_event_extra_from_the_function_is_kept_if_usable(live_crew, deferrable, put):
    def brief(outlet_events: Any = None) -> dict[str, Any]:
        outlet_events[OTHER].extra = put
        return INPUTS

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, deferrable=deferrable)(brief)
    live_crew.scenario = SLOW
    live_crew.at_look(1, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    task = ShownTask(lambda: crew().operator, outlets=(REPORT, OTHER))

    result = task.run()

    assert task.told(REPORT) == told(result)
    if deferrable:  # as with every deferrable operator, what is set before the deferral is lost
        assert task.told(OTHER) == told(result)
    elif put == {"day": "monday"}:
        assert task.told(OTHER) == told(result) | put


@pytest.mark.parametrize(("seconds", "shown"), [(11.2, " in 11 s"), (None, "")])
def test_asset_recipe_reads_an_execution_without_a_time(seconds, shown):
    recipe = runpy.run_path(str(ROOT / "example_dags" / "crew_asset.py"))
    publish = recipe["publish"].function
    extra = {"kickoff_id": "k-1", "usage": None, "execution_time": seconds}
    source = {"source_dag_id": "crew_asset", "source_run_id": "run", "source_task_id": "report"}
    events = {recipe["REPORT"]: [SimpleNamespace(extra=extra, **source)]}
    ti = SimpleNamespace(xcom_pull=lambda **_: {"output": "Briefing\nMore"})

    assert publish(inlet_events=events, ti=ti) == f"Briefing, by execution k-1{shown}"
