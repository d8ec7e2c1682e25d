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
PAUSED = Paused(
    status="paused",
    kickoff_id=KICKOFF_ID,
    word="PAUSED",
    progress=Progress(completed=1, total=3),
    current_task="ask",
)
KEYS = {
    *("version", "kickoff_id", "state", "doing", "unit", "completed", "total", "current_task", "current_agent"),
    *(
        "started_at",
        "since",
        "polled_at",
        "stale_after",
        "deadline",
        "human_input",
        "trouble",
        "steps",
        "tasks",
        "end",
    ),
}
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
        "steps": [
            step("research_task", 0, NOW + 10, NOW + 30),
            step("writing_task", 1, NOW + 30, None, agent="Writer"),
        ],
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


def test_steps_survive_a_pause_and_end_with_the_execution():
    told = Told(human_input=True)
    told.see(RESEARCH, at=10)
    paused = PAUSED.model_copy(update={"current_task": "research_task", "progress": RESEARCH.progress})
    assert told.see(paused, at=20)["steps"] == [step("research_task", 0, NOW + 10, None)]
    told.see(RESEARCH, at=90)

    then = told.see(WRITING, at=100)

    assert then["human_input"] is True
    assert then["steps"][0] == step("research_task", 0, NOW + 10, NOW + 100)
    # The task resumes some time after the last poll.
    told.see(SUCCESS, at=130)
    end = progress.completed(told.report.as_dict(), RESULT, NOW + 500)
    assert end["steps"][-1] == step("writing_task", 1, NOW + 100, NOW + 130)


def test_outage_and_its_end_are_reported():
    told = Told()
    told.see(RESEARCH, at=10)

    trouble = told.see(DOWN, at=20)
    assert (trouble["state"], trouble["current_task"], trouble["completed"]) == ("running", "research_task", 0)
    assert DOWN.event in trouble["trouble"]
    assert (trouble["since"], trouble["polled_at"]) == (NOW + 10, NOW + 20)
    assert told.see(DOWN, at=30) is None
    assert told.see(RESEARCH, at=40)["trouble"] == ""


def test_pause_is_reported_with_its_start():
    told = Told()
    told.see(RESEARCH, at=10)

    paused = told.see(PAUSED, at=20)
    assert (paused["state"], paused["current_task"], paused["since"]) == ("paused", "ask", NOW + 20)
    assert paused["trouble"]
    assert told.see(PAUSED, at=80) is None
    assert told.report.as_dict()["since"] == NOW + 20
    assert told.see(WRITING, at=140)["state"] == "running"


def test_unknown_execution_is_reported_as_unknown():
    told = Told(exists=True)
    told.see(RESEARCH, at=10)

    unknown = told.see(UNKNOWN, at=100)
    assert (unknown["state"], unknown["current_task"], unknown["since"]) == ("unknown", "research_task", NOW + 100)
    assert unknown["trouble"]
    # The service is away as well, and may know as little as before when it is back.
    assert told.see(DOWN, at=110)["state"] == "unknown"
    assert told.see(RESEARCH, at=120)["state"] == "running"


def test_task_outputs_share_a_size_limit():
    for count, longest in ((1, 2_000), (8, 2_000), (16, 1_000), (500, 160)):
        told = Told()
        told.story.watch.memory.history.tasks.extend(
            task(f"task_{number}", "x" * 9_000) for number in range(count)
        )
        told.see(RESEARCH, at=10)

        tasks = told.report.as_dict()["tasks"]
        assert {each["output"] for each in tasks} == {"x" * longest + "…"}
        assert tasks[-1]["task_id"] == f"task_{count - 1}"
        assert len(json.dumps(tasks)) < 32_000


def test_names_are_cut_and_free_of_control_characters():
    told = Told().see(running("a\x1b[31m" + "b" * 900, 1, current_agent="c\nd" * 900), at=10)

    assert len(told["current_task"]) <= 201
    assert "\x1b" not in told["current_task"]
    assert "\n" not in told["current_agent"]


class TestAtTheEnd:
    def test_completed_report_has_every_key(self):
        told = Told()
        told.see(WRITING, at=10)
        told.see(DOWN, at=20)

        told.see(SUCCESS, at=30)
        end = progress.completed(told.report.as_dict(), RESULT, NOW + 50)

        assert end.keys() == KEYS
        assert (end["state"], end["trouble"]) == ("completed", "")
        assert (end["completed"], end["total"], end["current_task"]) == (3, 3, None)
        assert (end["since"], end["polled_at"], len(end["tasks"])) == (NOW + 30, NOW + 30, 3)

    def test_reason_keeps_its_lines_and_both_ends(self):
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
    def test_only_a_failed_execution_has_the_state_failed(self, error, state):
        told = Told()
        told.see(WRITING, at=10)

        end = progress.ended(told.report.as_dict(), error, NOW + 30)

        shown = error.as_dict() | {"billed": error.cost.sentence}
        assert end.keys() == KEYS
        assert (end["state"], end["end"], end["current_task"]) == (state, shown, "writing_task")

    def test_report_of_any_text_can_be_stored(self):
        end = progress.ended(progress.begun("a\x00\ud800", NOW), Unreachable("b\x00\ud800" * 4_000), NOW)

        assert "\x00" not in repr(end)
        assert json.dumps(end).encode()
        assert not any(0xD800 <= ord(character) <= 0xDFFF for character in end["kickoff_id"] + end["end"]["event"])
        assert len(end["end"]["event"]) < 6_100
