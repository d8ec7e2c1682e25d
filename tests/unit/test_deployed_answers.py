"""Answers of a deployed crew, which have a ``state``, compared with the documented ones."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.client.models import Completed, Failed, Progress, Running, TaskResult, read_execution
from tests.unit.crew_builders import KICKOFF_ID, live_answer

PROGRESS = {
    "unit": "task",
    "completed": 1,
    "total": 2,
    "remaining": 1,
    "current": "summary_task",
    "current_agent": "Editor",
    "started_at": "2026-10-01T09:00:00Z",
    "duration_seconds": 12.5,
}
LAST = {"name": "facts_task", "description": "Collect facts.", "output": "Facts.", "meta": None}
USAGE = {"total_tokens": 312, "prompt_tokens": 200, "successful_requests": 2}
FACTS = TaskResult(task_id="facts_task", output="Facts.", execution_time=None)
SUMMARY = TaskResult(task_id="summary_task", agent="Editor", output="In short.", execution_time=3.0)


def read(body: dict[str, Any]) -> Any:
    return read_execution(body, KICKOFF_ID)


def completed(**fields: Any) -> Completed:
    execution = read(live_answer("SUCCESS", **{"result": "Done.", **fields}))
    assert isinstance(execution, Completed)
    return execution


def failed(**fields: Any) -> Failed:
    execution = read(live_answer("FAILED", **fields))
    assert isinstance(execution, Failed)
    return execution


def test_running_crew() -> None:
    execution = read(live_answer("RUNNING", "Task is Running", progress=PROGRESS, last_executed_task=LAST))

    assert execution == Running(
        status="running",
        kickoff_id=KICKOFF_ID,
        word="RUNNING",
        current_task="summary_task",
        current_agent="Editor",
        progress=Progress(completed=1, total=2),
        duration=12.5,
        last_task=FACTS,
    )
    assert execution.is_known


def test_completed_crew() -> None:
    progress = PROGRESS | {"completed": 2, "remaining": 0, "current": None}
    last = {"name": "summary_task", "agent": "Editor", "output": "In short.", "execution_time": 3}

    execution = completed(progress=progress, last_executed_task=last, usage_metrics=USAGE)

    assert execution.result() == {
        "kickoff_id": KICKOFF_ID,
        "output": "Done.",
        "output_json": None,
        "tasks": [SUMMARY.model_dump()],
        "tasks_complete": False,
        "usage": USAGE,
        "execution_time": 12.5,
    }
    assert execution.progress == Progress(completed=2, total=2)


@pytest.mark.parametrize("result", [None, "", {"output": None}], ids=str)
def test_deployed_execution_without_output_has_an_empty_one(result: Any) -> None:
    assert (completed(result=result).output, completed(result=result).output_json) == ("", None)
    assert completed(result=result, result_json={"a": 1}).output_json == {"a": 1}


@pytest.mark.parametrize(
    ("last", "read_to"),
    [
        (LAST, FACTS),
        ({"task_id": "facts_task", "output": "Facts."}, FACTS),
        ("facts_task", None),
    ],
)
def test_last_task_is_read(last: Any, read_to: Any) -> None:
    assert read(live_answer("RUNNING", last_executed_task=last)).last_task == read_to
    assert completed(last_executed_task=last).tasks == ((read_to,) if read_to else ())


@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        (USAGE, USAGE),
        (
            {"a": True, "b": None, "c": "7", "d": [1], "e": float("nan"), "f": 2**70, "g": 0},
            {"f": 2.0**70, "g": 0},
        ),
        ({"cost\x00": 0.25, "n": 2}, {"cost\ufffd": 0.25, "n": 2}),
    ],
    ids=["all", "only numbers that can be stored", "names"],
)
def test_usage_is_read(sent: Any, usage: dict[str, float]) -> None:
    told = completed(usage_metrics=sent).usage or {}

    assert told == failed(usage_metrics=sent).usage == usage
    assert [type(count) for count in told.values()] == [type(count) for count in usage.values()]


def completed_of(total: int | None, *tasks: TaskResult, unit: str = "task") -> Completed:
    progress = {"unit": unit, "completed": 1, "total": total}
    own = {"last_executed_task": tasks[0].model_dump()} if tasks else {}
    return completed(progress=progress, **own)


@pytest.mark.parametrize(
    ("execution", "complete"),
    [
        pytest.param(completed_of(1, SUMMARY), True, id="the only one"),
        pytest.param(completed_of(2, SUMMARY), False, id="one of two"),
        pytest.param(completed_of(None, SUMMARY), False, id="of how many is not known"),
        pytest.param(completed_of(1, SUMMARY, unit="step"), False, id="steps are no tasks"),
        pytest.param(completed(result={"output": "x", "tasks": [LAST]}), True, id="listed, documented"),
    ],
)
def test_tasks_complete_flag(execution: Completed, complete: Any) -> None:
    assert execution.tasks_complete is complete
    assert execution.result()["tasks_complete"] is complete
