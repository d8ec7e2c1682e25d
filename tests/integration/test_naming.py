"""Names of mapped tasks: map_index_template in every mode, and templates that cannot be rendered."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client.errors import ExecutionFailed
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.operators.crew import CrewRunOperator
from tests.integration.operators import both_ways
from tests.integration.shown import ShownTask
from tests.integration.tasks import FAILING, INPUTS, SLOW, fired, revived
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


def named_by_its_function(name: Any = "about ferries", **options: Any) -> Any:
    """Return the operator of a function that sets a name in its context, as Airflow's documentation shows it."""

    def brief(**context: Any) -> dict[str, Any]:
        context["ti"].context["my_name"] = name
        return INPUTS

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, **options)(brief)
    return crew().operator


class SeesItsContext(ShownTask):
    """Lets the function of a task set something in its context, which it gets a copy of."""

    def _new_process(self) -> None:
        super()._new_process()
        self._ti.context = self._context


def left_running(task: ShownTask, crew: Any) -> Any:
    """Defer a task, and let its crew complete."""
    crew.scenario = SLOW
    waiting = task.deferred()
    crew.finish(crew.kickoffs[-1].kickoff_id)
    return waiting


def resumed_late(task: ShownTask, crew: Any) -> Any:
    """Resume a deferred task in another process; return its result."""
    waiting = left_running(task, crew)
    result = task.resume(waiting, asyncio.run(fired(revived(waiting.trigger))))
    task.names.append(task.rendered())
    return result


def named(**options: Any) -> SeesItsContext:
    return SeesItsContext(lambda: named_by_its_function(deferrable=True), template="{{ my_name }}", **options)


@pytest.mark.parametrize("how", ["by its event", "without an event", "as a retry"])
def test_name_from_a_function_survives_the_deferral(live_crew, store, how):
    task = named(store=store, retries=1)
    waiting = left_running(task, live_crew)

    if how == "by its event":
        task.resume(waiting, asyncio.run(fired(revived(waiting.trigger))))
    elif how == "without an event":
        task.resume_without_event("the trigger broke")
    else:
        task.run()

    assert [*task.names[:1], task.rendered()] == ["about ferries"] * 2
    assert len(live_crew.kickoffs) == 1


def test_name_from_a_function_survives_a_failed_crew(live_crew):
    live_crew.scenario = FAILING
    task = named()

    with pytest.raises(ExecutionFailed):
        task.run()

    assert task.names == ["about ferries"]


@both_ways
@pytest.mark.parametrize(
    "template",
    ["{{ no_such_name }}", "{{ no_such_name.at_all }}", "{{ 1 / 0 }}", "{% if %}", "{{ ti.nothing() }}"],
)
def test_unrenderable_template_fails_nothing(live_crew, task_log, template, deferrable):
    def make() -> Any:
        return CrewRunOperator(task_id="crew", inputs=INPUTS, poll_interval=0.02, deferrable=deferrable)

    task = ShownTask(make, template=template)

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert task.names == [None]
    assert task_log.warnings.count("map_index_template") == 1


@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("3", "3"),
        (7, "7"),
        ("{{ topic }} {% raw %} {#", "{{ topic }} {% raw %} {#"),
        ("a\x00\ud800b", "a��b"),
        ("é" * 300, "é" * 250),
        ("", None),
    ],
)
def test_any_text_is_accepted_as_a_name(live_crew, name, shown, native):
    task = SeesItsContext(
        lambda: named_by_its_function(name, deferrable=True), template="{{ my_name }}", native=native
    )

    resumed_late(task, live_crew)

    assert task.names == [shown, shown]


@both_ways
def test_name_may_use_the_result(live_crew, deferrable, task_log):
    def name(context: Any, result: Any = None) -> None:
        context["my_name"] = result["output"].splitlines()[0]

    def make() -> Any:
        return CrewRunOperator(
            task_id="crew", inputs=INPUTS, deferrable=deferrable, poll_interval=0.02, post_execute=name
        )

    task = ShownTask(make, template="{{ my_name }}")

    task.run()

    assert task.names == [f"Briefing: {live_crew.kickoffs[0].inputs['topic']}"]
    assert "map_index_template" not in task_log.text


@pytest.mark.skipif(AIRFLOW < (3, 2), reason="Airflow takes a name before the end from 3.2 on")
@pytest.mark.parametrize("answers", [True, False], ids=["which takes it", "which does not answer"])
def test_name_is_sent_to_airflow_before_the_kickoff(live_crew, monkeypatch, task_log, answers):
    told: list[tuple[Any, int]] = []

    def send(msg: Any) -> None:
        told.append((msg.rendered_map_index, len(live_crew.kickoffs)))
        if not answers:
            raise RuntimeError("the API server is away")

    comms = "airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS"
    monkeypatch.setattr(comms, SimpleNamespace(send=send), raising=False)
    task = SeesItsContext(named_by_its_function, template="{{ my_name }}")

    task.run()

    assert (told, task.names) == ([("about ferries", 0)], ["about ferries"])
    assert ("the API server is away" in task_log.warnings) != answers
