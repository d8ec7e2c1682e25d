"""Progress of a watched execution, as it is pushed to XCom, and when it is news."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import ANY

import pytest

from airflow_provider_crew.client import progress
from airflow_provider_crew.client.errors import (
    CallError,
    ExecutionFailed,
    ExecutionNotFound,
    ExecutionUnknown,
    LostContact,
    Unreachable,
)
from airflow_provider_crew.client.models import Paused, Progress, TaskResult
from airflow_provider_crew.client.progress import ProgressReport
from airflow_provider_crew.client.timing import Timing
from tests.unit.crew_builders import KICKOFF_ID, NOW
from tests.unit.watch_stories import DOWN, RESEARCH, SUCCESS, WRITING, Story, running

UNKNOWN = ExecutionNotFound("The crew does not know it.")
THERE = Progress(completed=1, total=3)
PAUSED = Paused(status="paused", kickoff_id=KICKOFF_ID, word="PAUSED", progress=THERE, current_task="ask")
PAUSED_THERE = PAUSED.model_copy(update={"current_task": "research_task", "progress": RESEARCH.progress})
RESULT: dict[str, Any] = {
    "tasks": [{"task_id": "a", "agent": "", "output": "", "execution_time": 1.5}] * 3,
    "tasks_complete": True,
    "execution_time": 250.0,
}


class Told:
    """A watch of one execution, and what people are told of it."""

    def __init__(self, **story: Any) -> None:
        self.story = Story(**story)
        self.report = ProgressReport(self.story.watch)

    def see(self, outcome: Any, *, at: float) -> Any:
        """Return what is told after a poll, if it is news."""
        self.story.see(outcome, at=at)
        is_news = self.report.update(None if isinstance(outcome, CallError) else outcome)
        return self.report.as_dict() if is_news else None


def task(name: str, output: str = "Notes") -> TaskResult:
    return TaskResult(task_id=name, agent="Writer", output=output, execution_time=None)


def step(name: str, number: int, started_at: float, ended_at: float | None, *, agent: str = "") -> dict[str, Any]:
    return {"task_id": name, "agent": agent, "number": number, "started_at": started_at, "ended_at": ended_at}


STEP = step("research_task", 0, NOW + 10, None)
RULES = {"steps survive a pause": {"human_input": True}, "unknown": {"exists": True}}
# Polls with their times, and what is told after each: None without news, or at least this.
STORIES: dict[str, list[tuple[Any, float, dict[str, Any] | None]]] = {
    "outage": [
        (RESEARCH, 10, {"state": "running", "trouble": ""}),
        (DOWN, 20, {"state": "running", "current_task": "research_task", "completed": 0, "polled_at": NOW + 20}),
        (DOWN, 30, None),
        (RESEARCH, 40, {"trouble": "", "since": NOW + 10}),
    ],
    "pause": [
        (RESEARCH, 10, {"steps": [STEP]}),
        (PAUSED, 20, {"state": "paused", "current_task": "ask", "since": NOW + 20}),
        (PAUSED, 80, None),
        (WRITING, 140, {"state": "running", "since": NOW + 140}),
    ],
    "steps survive a pause": [
        (RESEARCH, 10, {"human_input": True}),
        (PAUSED_THERE, 20, {"steps": [STEP]}),
        (RESEARCH, 90, {"steps": [STEP]}),
        (WRITING, 100, {"steps": [STEP | {"ended_at": NOW + 100}, step("writing_task", 1, NOW + 100, None)]}),
    ],
    # The crew is away as well, and may know as little as before when it is back.
    "unknown": [
        (RESEARCH, 10, {"state": "running"}),
        (UNKNOWN, 100, {"state": "unknown", "current_task": "research_task", "since": NOW + 100}),
        (DOWN, 110, {"state": "unknown"}),
        (RESEARCH, 120, {"state": "running"}),
    ],
}


@pytest.mark.parametrize("name", STORIES)
def test_changes_are_told_once(name):
    watched = Told(**RULES.get(name, {}))
    for outcome, at, wanted in STORIES[name]:
        told = watched.see(outcome, at=at)
        assert told == (None if wanted is None else told | wanted)
        assert not told or bool(told["trouble"]) is (outcome in (DOWN, UNKNOWN, PAUSED, PAUSED_THERE))


def test_progress_is_reported_when_it_changes():
    told = Told(kicked_off_at=NOW - 5)
    seen = running("writing_task", 1, current_agent="Writer", last_task=task("research_task"))

    assert "research_task" in told.see(RESEARCH, at=10)["doing"]
    assert told.see(RESEARCH, at=20) is None
    told_of_it = told.see(seen, at=30)
    doing = told_of_it.pop("doing")
    assert "writing_task" in doing
    assert "Writer" in doing
    assert told_of_it == {
        "version": 1,
        "kickoff_id": KICKOFF_ID,
        "state": "running",
        "unit": "task",
        "completed": 1,
        "total": 3,
        "current_task": "writing_task",
        "current_agent": "Writer",
        "started_at": NOW - 5,
        "since": NOW + 30,
        "polled_at": NOW + 30,
        "stale_after": ANY,
        "deadline": NOW + 24 * 3600,
        "human_input": False,
        "trouble": "",
        "steps": [STEP | {"ended_at": NOW + 30}, step("writing_task", 1, NOW + 30, None, agent="Writer")],
        "tasks": [{"task_id": "research_task", "agent": "Writer", "output": "Notes", "execution_time": None}],
        "end": None,
    }
    assert told.see(seen, at=40) is None
    assert told.report.as_dict()["polled_at"] == NOW + 40


@pytest.mark.parametrize("interval", [None, 1.0, 30.0, 600.0])
def test_progress_of_a_healthy_run_is_never_stale(interval):
    told = Told(kicked_off_at=NOW, poll_interval=interval)
    pushed, at = progress.begun(KICKOFF_ID, NOW), 5.0
    for _ in range(100):
        news = told.see(RESEARCH, at=at)
        age = NOW + at - pushed["polled_at"]
        assert age < pushed["stale_after"]
        if news or age >= Timing().progress_refresh:
            pushed = told.report.as_dict()
        at += told.story.watch.memory.pause


def test_task_outputs_share_a_size_limit():
    for count, longest in ((1, 2_000), (8, 2_000), (16, 1_000), (500, 160)):
        told = Told()
        tasks = [task(f"task_{number}", "x" * 9_000) for number in range(count)]
        told.story.watch.memory.history.tasks.extend(tasks)

        shown = told.see(RESEARCH, at=10)["tasks"]
        assert {each["output"] for each in shown} == {"x" * longest + "…"}
        assert shown[-1]["task_id"] == f"task_{count - 1}"
        assert len(json.dumps(shown)) < 32_000


def test_names_are_cut_and_free_of_control_characters():
    told = Told().see(running("a\x1b[31m" + "b" * 900, 1, current_agent="c\nd" * 900), at=10)

    assert len(told["current_task"]) <= 201
    assert "\x1b" not in told["current_task"]
    assert "\n" not in told["current_agent"]


def test_completed_report_has_every_key_and_the_time_of_the_last_poll():
    told = Told()
    for outcome, at in ((WRITING, 10), (DOWN, 20), (SUCCESS, 30)):
        told.see(outcome, at=at)

    # The task resumes some time after the last poll.
    end = progress.completed(told.report.as_dict(), RESULT, NOW + 500)

    assert end.keys() == progress.begun("", 0.0).keys()
    assert (end["state"], end["trouble"]) == ("completed", "")
    assert (end["completed"], end["total"], end["current_task"]) == (3, 3, None)
    assert (end["since"], end["polled_at"], len(end["tasks"])) == (NOW + 30, NOW + 30, 3)
    assert end["steps"] == [step("writing_task", 1, NOW + 10, NOW + 30)]


def test_reason_keeps_its_lines_and_both_ends():
    known = progress.begun(KICKOFF_ID, NOW)
    for body in ("b", "b" * 9_000):
        error = ExecutionFailed("boom", error=f"Traceback:\0\n  {body}\nValueError: x\n")
        reason = progress.ended(known, error, NOW)["end"]["reason"]
        assert reason.startswith("Traceback:\ufffd\n  b")
        assert reason.endswith("b\nValueError: x")
        assert len(reason) < 5_000

    assert "reason" not in progress.ended(known, ExecutionFailed("a", error="one line\n"), NOW)["end"]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ExecutionFailed("boom", kickoff_id=KICKOFF_ID), "failed"),
        (ExecutionUnknown("unknown", kickoff_id=KICKOFF_ID), "unknown"),
        (UNKNOWN, "unknown"),
        (LostContact("away", kickoff_id=KICKOFF_ID), "running"),
    ],
)
def test_only_a_failed_execution_has_the_state_failed(error, state):
    told = Told()
    told.see(WRITING, at=10)

    end = progress.ended(told.report.as_dict(), error, NOW + 30)

    shown = error.as_dict() | {"billed": error.cost.sentence}
    assert end.keys() == progress.begun("", 0.0).keys()
    assert (end["state"], end["end"], end["current_task"]) == (state, shown, "writing_task")


def test_report_of_any_text_can_be_stored():
    end = progress.ended(progress.begun("a\x00\ud800", NOW), Unreachable("b\x00\ud800" * 4_000), NOW)

    assert "\x00" not in repr(end)
    assert json.dumps(end).encode()
    assert not any(0xD800 <= ord(character) <= 0xDFFF for character in end["kickoff_id"] + end["end"]["event"])
    assert len(end["end"]["event"]) < 6_100
