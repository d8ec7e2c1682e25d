"""
Progress of a watched execution, as it is pushed to XCom, and when it is news.

``progress.txt`` has stories: polls with their times and what each changes in the XCom, and the end of the task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.client import errors, progress, timing
from airflow_provider_crew.client.models import Paused, Progress, TaskResult
from airflow_provider_crew.client.progress import ProgressReport
from tests.unit.crew_builders import DOWN, KICKOFF_ID, NOW, RESEARCH, SUCCESS, WRITING, Story, running

UNKNOWN = errors.ExecutionNotFound("The crew does not know it.")
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
        is_news = self.report.update(None if isinstance(outcome, errors.CallError) else outcome)
        return self.report.as_dict() if is_news else None


def task(name: str, output: str = "Notes") -> TaskResult:
    return TaskResult(task_id=name, agent="Writer", output=output, execution_time=None)


WRITER = running("writing_task", 1, current_agent="Writer", last_task=task("research_task"))
OUTCOMES: dict[str, Any] = {
    "research": RESEARCH,
    "writing": WRITING,
    "writing, by an agent": WRITER,
    "success": SUCCESS,
    "down": DOWN,
    "unknown": UNKNOWN,
    "paused": PAUSED,
    "paused there": PAUSED_THERE,
}
ENDS: dict[str, Any] = {
    "result": RESULT,
    "has failed": errors.ExecutionFailed("boom", kickoff_id=KICKOFF_ID),
    "is unknown": errors.ExecutionUnknown("unknown", kickoff_id=KICKOFF_ID),
    "is forgotten": errors.ExecutionUnknown("unknown", kickoff_id=KICKOFF_ID, has_completed=True),
    "never known": UNKNOWN,
    "lost": errors.LostContact("away", kickoff_id=KICKOFF_ID),
}


def news(told: dict[str, Any], before: dict[str, Any]) -> str:
    """Return what is told for the first time, with times from the beginning of the story."""
    text = json.dumps({name: value for name, value in told.items() if before.get(name, ...) != value})
    return re.sub(r"\b17\d{8}\.\d+", lambda time: f"{float(time[0]) - NOW:g}", text)


def table(written: list[str]) -> Iterator[str]:
    for story in "\n".join(written).split("\n\n"):
        title, *lines = [line for line in story.splitlines() if line[0] != ">"]
        rules: dict[str, Any] = dict.fromkeys(re.findall(r"with (\w+)", title), True)
        told, before = Told(kicked_off_at=NOW - 5, **rules), progress.begun(KICKOFF_ID, NOW)
        yield title
        for line in lines:
            yield line
            at, _, outcome = line.strip().partition(" ")
            if end := ENDS.get(outcome):
                known, when = told.report.as_dict(), NOW + float(at)
                ended = progress.completed(known, end, when) if end is RESULT else progress.ended(known, end, when)
                assert ended.keys() == progress.begun("", 0.0).keys()
            else:
                ended = told.see(OUTCOMES[outcome], at=float(at))
            yield f"> {news(ended, before)}" if ended else "> no news"
            before = ended or before
        yield ""


def test_changes_are_told_once(printed: Any) -> None:
    printed("progress.txt", table)


@pytest.mark.parametrize("interval", [None, 1.0, 30.0, 600.0])
def test_progress_of_a_healthy_run_is_never_stale(interval):
    told = Told(kicked_off_at=NOW, poll_interval=interval)
    pushed, at = progress.begun(KICKOFF_ID, NOW), 5.0
    for _ in range(100):
        news = told.see(RESEARCH, at=at)
        age = NOW + at - pushed["polled_at"]
        assert age < pushed["stale_after"]
        if news or age >= timing.PROGRESS_REFRESH:
            pushed = told.report.as_dict()
        at += told.story.watch.memory.pause
