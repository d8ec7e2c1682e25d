"""Both dialects give the same result, the same error, and the same decision of the next attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from airflow_provider_crew.exceptions import CrewTaskFailed, EndedTask
from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from tests.integration.operators import both_ways, in_every_way, run, run_task
from tests.integration.tasks import QUICK, SLOW, Task, WatchedService, poked, skip_where_pokes_forget
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

JSON = '{"port": "Hamburg", "ships": [1, 2]}'


def one_task(**options: Any) -> Scenario:
    return Scenario(tasks=(ScenarioTask(name="writing_task", **options),), inputs=())


def finished(service: WatchedService) -> None:
    """Complete each execution at its third poll."""
    polls: Counter[str] = Counter()

    def finish(request: ReceivedRequest) -> None:
        if request.operation == "status":
            kickoff_id = service.kickoffs[-1].kickoff_id
            polls[kickoff_id] += 1
            if polls[kickoff_id] == 3:
                service.finish(kickoff_id)

    service.after = finish


def forgotten(service: WatchedService) -> None:
    service.at_look(1, lambda: service.forget(service.kickoffs[0].kickoff_id))


def revoked(service: WatchedService) -> None:
    """Revoke each execution once it was polled."""

    def revoke(request: ReceivedRequest) -> None:
        if request.operation == "status":
            service.revoke(service.kickoffs[-1].kickoff_id)

    service.after = revoke


class Story(NamedTuple):
    """What the crew does, what befalls it, and how two attempts of its task end."""

    scenario: Scenario
    ends: tuple[Any, Any]
    befalls: Callable[[WatchedService], Any] = lambda _: None


NEEDS_PORT = one_task().model_copy(update={"inputs": (CrewInput(name="port"),)})
DONE, PARSED = ("Done.", None), (JSON, {"port": "Hamburg", "ships": [1, 2]})
STORIES = {
    "completed later": Story(one_task(output="Done.", seconds=3600), (DONE, DONE), finished),
    "completed with JSON": Story(one_task(output=JSON), (PARSED, PARSED)),
    "completed with nothing": Story(one_task(output=""), (("", None), ("", None))),
    "after the answer of a person": Story(one_task(output="Done.", human_input=0.3), (DONE, DONE)),
    "failed": Story(one_task(error="ValueError: completed"), ("ExecutionFailed", "ExecutionFailed anew")),
    "revoked": Story(SLOW, ("ExecutionStopped for good", "ExecutionStopped for good"), revoked),
    "forgotten": Story(SLOW, ("ExecutionUnknown for good", "ExecutionUnknown for good"), forgotten),
    "without a required input": Story(NEEDS_PORT, ("InvalidInputs for good", "InvalidInputs for good")),
    "rejected for an input": Story(
        NEEDS_PORT.model_copy(update={"required_inputs": False}), ("Rejected for good", "Rejected for good")
    ),
}


def end_of(task: Task, service: WatchedService) -> Any:
    """Return how an attempt ends: a result, or an error that is retried or not; and whether it kicked off anew."""
    before = len(service.kickoffs)
    try:
        result = poked(task)
    except Exception as error:  # noqa: BLE001 - to compare them all
        name = type(error.failure if isinstance(error, EndedTask) else error).__name__
        anew = " anew" if before and len(service.kickoffs) > before else ""
        return f"{name}{' for good' * isinstance(error, CrewTaskFailed)}{anew}"
    # Before Airflow 3.3 nothing is left of a kickoff when its task has returned.
    assert AIRFLOW < (3, 3) or before in (0, len(service.kickoffs))
    return result["output"], result["output_json"]


@pytest.fixture(params=["documented", "deployed"])
def told(request, live_crew, timing) -> Callable[[Story], WatchedService]:
    timing(not_found_grace=0.05, unknown_poll=0.05 / 6)

    def tell(story: Story) -> WatchedService:
        live_crew.scenario = story.scenario.model_copy(update={"dialect": request.param})
        story.befalls(live_crew)
        return live_crew

    return tell


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
@both_ways
def test_run_ends_alike_in_both_dialects(told, store, story, deferrable):
    service = told(story)
    max_outage = 0.2 if story.befalls is forgotten else 60
    task = Task(lambda: run(deferrable=deferrable, max_outage=max_outage), store=store, retries=1)

    assert (end_of(task, service), end_of(task, service)) == story.ends


def test_task_outputs_are_complete_if_all_were_seen(told, store):
    """A deployed crew returns the last task alone, so outputs seen before are kept."""
    tasks = tuple(task.model_copy(update={"seconds": 0.0}) for task in QUICK.tasks)
    told(Story(QUICK.model_copy(update={"tasks": tasks}), (DONE, DONE)))

    result = Task(run, store=store).run()

    known = [task["task_id"] for task in result["tasks"]]
    assert known == ["research_task", "writing_task", "review_task"][-len(known) :]
    assert result["tasks_complete"] is (len(known) == 3)


def at_work(name: str, agent: str, done: int, last: str | None = None) -> dict[str, Any]:
    """Return the status of a deployed crew with three tasks."""
    progress = {"unit": "task", "completed": done, "total": 3, "current": name, "current_agent": agent}
    last_task = last and {"name": last, "output": f"Output of {last}"}
    return {"state": "RUNNING", "progress": progress | {"duration_seconds": 0.5}, "last_executed_task": last_task}


WORKING = (
    at_work("research_task", "Researcher", 0),
    at_work("writing_task", "Writer", 1, "research_task"),
    at_work("review_task", "Editor", 2, "writing_task"),
)
ENDED = {"state": "SUCCESS", "result": "Done.", "last_executed_task": {"name": "review_task", "output": "Done."}}
THREE = {"unit": "task", "completed": 3, "total": 3, "current": None, "duration_seconds": 60.0}


@in_every_way
@pytest.mark.parametrize("last", [{"progress": THREE}, {}], ids=["last answer has progress", "it has none"])
def test_result_has_what_polls_saw_of_a_deployed_crew(live_crew, store, kind, options, last):
    skip_where_pokes_forget(options)
    live_crew.scenario = SLOW.model_copy(update={"statuses": (*WORKING, ENDED | last)})

    result = poked(kind(live_crew, store=store, **options))

    assert [(task["task_id"], task["agent"]) for task in result["tasks"]] == [
        ("research_task", "Researcher"),
        ("writing_task", "Writer"),
        ("review_task", "Editor"),
    ]
    first, second, third = (task["execution_time"] for task in result["tasks"])
    assert first >= 0.5
    assert second is not None
    assert (result["execution_time"] == 60.0, (third or 0.0) > 50) == ((True, True) if last else (False, False))
    assert result["execution_time"] >= 0.5


@both_ways
@pytest.mark.parametrize("without", ["log_output", "small result"])
def test_result_that_the_task_reads_has_what_polls_saw(live_crew, store, deferrable, without):
    output = "x" * (64 * 1024 if without == "small result" else 1)
    live_crew.scenario = SLOW.model_copy(
        update={"statuses": (*WORKING, ENDED | {"progress": THREE, "result": output})}
    )

    result = run_task(live_crew, store=store, deferrable=deferrable, log_output=without != "log_output").run()

    assert [task["task_id"] for task in result["tasks"]][-1:] == ["review_task"]
    assert result["tasks"][-1]["agent"] == "Editor"
    assert result["tasks"][-1]["execution_time"] > 50
