"""Both dialects give the same result, the same error, and the same decision of the next attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_crew.exceptions import CrewTaskFailed, EndedTask
from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.tasks import (
    INPUTS,
    QUICK,
    SLOW,
    Task,
    TaskStateStore,
    WatchedService,
    outlives_the_return,
    poked,
    skip_where_pokes_forget,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

JSON = '{"port": "Hamburg", "ships": [1, 2]}'


@dataclass
class Story:
    """What the crew does, what befalls it, and how the tries of its task end."""

    scenario: Scenario
    ends: list[Any]
    befalls: Callable[[WatchedService], Any] = lambda _: None
    next_try: Callable[[Task], Any] = lambda _: None
    limits: Mapping[str, float] = field(default_factory=dict)

    def expected(self) -> list[Any]:
        """Return the ends: before 3.3 nothing is left of a kickoff when its task has returned."""
        if AIRFLOW < (3, 3) and isinstance(self.ends[0], tuple):
            return [self.ends[0], (*self.ends[0], "anew")]
        return self.ends


def one_task(**options: Any) -> Scenario:
    return Scenario(tasks=(ScenarioTask(name="writing_task", **options),), inputs=())


def first(service: WatchedService) -> str:
    return service.kickoffs[0].kickoff_id


def finished(service: WatchedService) -> None:
    """Each of them, at its third look."""
    looks: Counter[str] = Counter()

    def finish(request: ReceivedRequest) -> None:
        if request.operation == "status":
            kickoff_id = service.kickoffs[-1].kickoff_id
            looks[kickoff_id] += 1
            if looks[kickoff_id] == 3:
                service.finish(kickoff_id)

    service.after = finish


def forgotten(service: WatchedService) -> None:
    """As it may be: for ever, or while a person is asked."""
    service.at_look(1, lambda: service.forget(first(service)))


def revoked(service: WatchedService) -> None:
    """Each of them, once it was looked at."""

    def revoke(request: ReceivedRequest) -> None:
        if request.operation == "status":
            service.revoke(service.kickoffs[-1].kickoff_id)

    service.after = revoke


SOON = {"max_outage": 0.2}
RESULT = ("Done.", None)
STORIES = {
    "completed at once": Story(one_task(output="Done."), [RESULT, RESULT]),
    "completed later": Story(one_task(output="Done.", seconds=3600), [RESULT, RESULT], finished),
    "completed, and cleared": Story(
        one_task(output="Done."), [RESULT, ("Done.", None, "anew")], next_try=lambda task: task.clear()
    ),
    "completed with JSON": Story(one_task(output=JSON), [(JSON, {"port": "Hamburg", "ships": [1, 2]})] * 2),
    "completed with a list": Story(one_task(output="[1]"), [("[1]", [1])] * 2),
    "completed with nothing": Story(one_task(output=""), [("", None)] * 2),
    "after the answer of a person": Story(one_task(output="Done.", human_input=0.3), [RESULT, RESULT]),
    "failed": Story(one_task(error="ValueError: completed nothing"), ["ExecutionFailed", "ExecutionFailed anew"]),
    "revoked": Story(SLOW, ["ExecutionFailed", "ExecutionFailed anew"], revoked),
    "forgotten": Story(SLOW, ["ExecutionUnknown for good"] * 2, forgotten, limits=SOON),
    "forgotten, and cleared": Story(
        SLOW, ["ExecutionUnknown for good"] * 2, forgotten, lambda task: task.clear(), limits=SOON
    ),
    "refused for an input": Story(
        one_task().model_copy(update={"inputs": (CrewInput(name="port"),)}), ["Refused for good"] * 2
    ),
}


def end_of(task: Task, service: WatchedService) -> Any:
    """Return what a try leads to: a result, or an error that is retried or not; and whether it kicked off anew."""
    before = len(service.kickoffs)
    try:
        result = poked(task)
    except Exception as error:  # noqa: BLE001 - to compare them all
        told = type(error.failure if isinstance(error, EndedTask) else error).__name__
        anew = " anew" if before and len(service.kickoffs) > before else ""
        return f"{told}{' for good' * isinstance(error, CrewTaskFailed)}{anew}"
    again = ("anew",) if before and len(service.kickoffs) > before else ()
    return (result["output"], result["output_json"], *again) if isinstance(result, dict) else (result, *again)


@pytest.fixture(params=["documented", "deployed"])
def told(request, live_crew, monkeypatch) -> Callable[[Scenario], WatchedService]:
    monkeypatch.setattr("airflow_provider_crew.client.options.NOT_FOUND_GRACE", 0.05)
    monkeypatch.setattr("airflow_provider_crew.client.watch._SOON", 0.05 / 6)

    def tell(scenario: Scenario) -> WatchedService:
        live_crew.scenario = scenario.model_copy(update={"dialect": request.param})
        return live_crew

    return tell


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("deferrable", [False, True], ids=["in the worker", "deferred"])
def test_run_ends_alike_in_both_dialects(told, store, story, deferrable):
    tale = STORIES[story]
    service = told(tale.scenario)
    options = {"deferrable": deferrable, "poll_interval": 0.02, **tale.limits}
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS, **options), store=store, retries=1)
    tale.befalls(service)

    ends = [end_of(task, service)]
    tale.next_try(task)
    ends.append(end_of(task, service))

    assert ends == tale.expected()


@outlives_the_return
@pytest.mark.parametrize(
    ("story", "anew"),
    [
        ("completed at once", [False, False]),
        ("failed", [True, True]),
        ("forgotten", [False, False]),
    ],
)
def test_kickoff_reattaches_alike_in_both_dialects(told, store: TaskStateStore, story, anew):
    service = told(STORIES[story].scenario)
    STORIES[story].befalls(service)
    task = Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), store=store, retries=1)
    ids = [task.run()]
    if story == "forgotten":
        service.forget(ids[0])
    ids += [task.run(), task.run()]

    assert [after != before for before, after in pairwise(ids)] == anew


@pytest.mark.parametrize("mode", [{}, {"deferrable": True}, {"mode": "reschedule"}], ids=str)
@pytest.mark.parametrize(
    ("story", "end"),
    [
        ("completed later", RESULT),
        ("completed with JSON", (JSON, {"port": "Hamburg", "ships": [1, 2]})),
        ("failed", "ExecutionFailed for good"),
        ("revoked", "ExecutionFailed for good"),
        ("forgotten", "ExecutionUnknown for good"),
    ],
)
def test_sensor_ends_alike_in_both_dialects(told, store, story, end, mode):
    if story == "forgotten":
        skip_where_pokes_forget(mode)
    service = told(STORIES[story].scenario)
    kickoff_id = service.take(INPUTS, None, {})
    STORIES[story].befalls(service)
    options = {"poke_interval": 0.02, **STORIES[story].limits, **mode}
    task = Task(lambda: CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, **options), store=store)

    assert end_of(task, service) == end


def test_task_outputs_are_complete_if_all_were_seen(told, store):
    """A deployed crew returns the last task alone, so outputs seen before are kept."""
    tasks = tuple(task.model_copy(update={"seconds": 0.0}) for task in QUICK.tasks)
    service = told(QUICK.model_copy(update={"tasks": tasks}))

    result = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS), store=store).run()

    known = [task["task_id"] for task in result["tasks"]]
    assert known == ["research_task", "writing_task", "review_task"][-len(known) :]
    assert result["tasks_complete"] is (len(known) == 3)
    assert result["output"].startswith("Briefing: harbours")
    assert len(service.kickoffs) == 1
