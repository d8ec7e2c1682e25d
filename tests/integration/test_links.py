"""The link from a task to the page of its crew or of its execution."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.exceptions import AirflowRescheduleException

from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.operators import kickoff, run
from tests.integration.tasks import CONNECTION, INPUTS, QUICK, SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]

PAGES = "https://app.example/runs/"


@pytest.fixture
def crew(live_crew, monkeypatch):
    page = urlencode({"dashboard_url": f"{PAGES}{{kickoff_id}}"})
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{page}")
    return live_crew


def page_of(task: Task, operator: Any) -> str | None:
    """Return the URL that the task has pushed for the link. Airflow pushes none itself."""
    assert operator.operator_extra_links == ()
    page: str | None = task.ti.xcoms.get(DASHBOARD_KEY)
    return page


@pytest.mark.parametrize("kind", [kickoff, run])
def test_link_points_to_the_execution(crew, kind):
    operator = kind()
    crew.next_kickoff_id("run 7/b")
    task = Task(lambda: operator)

    task.run()

    assert page_of(task, operator) == f"{PAGES}run%207%2Fb"


def test_link_that_cannot_be_pushed_fails_nothing(crew, task_log):
    task = Task(run, refused_xcoms=frozenset({DASHBOARD_KEY}))

    assert task.run()["kickoff_id"] == crew.kickoffs[0].kickoff_id
    assert "the XCom backend is full" in task_log.text


@pytest.mark.parametrize("options", [{"mode": "poke"}, {"mode": "reschedule"}, {"deferrable": True}])
def test_link_of_a_sensor_points_to_its_execution(crew, options):
    crew.scenario = SLOW if "reschedule" in options.values() else QUICK
    kickoff_id = Task(lambda: CrewKickoffOperator(task_id="kickoff", inputs=INPUTS)).run()
    operator = CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, poke_interval=0.02, **options)
    task = Task(lambda: operator)

    try:
        task.run()
    except AirflowRescheduleException:
        assert crew.scenario is SLOW

    assert page_of(task, operator) == PAGES + kickoff_id


def test_page_of_a_crew_is_pushed_before_the_kickoff(live_crew, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{urlencode({'dashboard_url': PAGES})}")
    left: list[str | None] = []
    task = Task(run)
    live_crew.at_kickoff = lambda: left.append(task.ti.xcoms.get(DASHBOARD_KEY))

    task.run()

    assert left == [PAGES]
