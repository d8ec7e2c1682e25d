"""
Progress of an execution as one JSON object for display, whichever process polls.

The object is short, because it may be written often. Code may depend only on its kickoff ID.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.models import Execution, Paused, Running, SeenTask, TaskResult
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.client.watch import Watch
from airflow_provider_crew.client.wording import SHOWN_TEXT, duration

# XCom key of the progress.
PROGRESS = "crew_progress"
# Seconds that the first poll of a trigger, a slow response and the push itself may take.
_GRACE = 15.0

State = Literal["none", "running", "paused", "unknown", "completed", "failed"]

_VERSION = 1
_MAX_NAME = 200
# An event may show several texts of the crew.
_MAX_TEXT = 3 * SHOWN_TEXT
_MAX_REASON = 4_000
_MAX_OUTPUT = 2_000
# Limit for the outputs of all tasks together.
_MAX_OUTPUTS = 8 * _MAX_OUTPUT
_MAX_TASKS = 100


class Pace:
    """
    Rule of when progress is pushed: news after a pause, and unchanged progress as a sign of life.

    :param writers: Number of writers in this process. Many push their signs of life less often.
    """

    def __init__(self, writers: Callable[[], int] = lambda: 1) -> None:
        self._writers = writers
        self.has_news = False
        """Whether there is news that was not pushed."""
        self._not_before, self._pushed_at = -math.inf, time.monotonic()

    @property
    def refresh(self) -> float:
        """Seconds from one sign of life to the next."""
        return max(timing.PROGRESS_REFRESH, timing.PROGRESS_REFRESH_EACH * self._writers())

    def is_due(self, is_news: bool) -> bool:  # noqa: FBT001 - as for an Observer
        """Whether to push now. News that is not due stays news."""
        now = time.monotonic()
        self.has_news = self.has_news or is_news or now - self._pushed_at >= self.refresh
        return self.has_news and now >= self._not_before

    def pushed(self) -> None:
        """Take note of a push."""
        self.has_news, self._pushed_at = False, time.monotonic()
        self._not_before = self._pushed_at + timing.PROGRESS_PAUSE


class ProgressReport:
    """
    Progress of one watch. Detects changes since the last poll.

    The first poll is news, because Airflow may have deleted what an earlier process reported. The position and the
    steps are in the state of the watch, so that the next process reports them as well.
    """

    __slots__ = ("_paused_at", "_reported", "_watch", "is_first")

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._paused_at = ""
        self._reported = self._current()
        self.is_first = True
        """Whether the next poll is news in any case."""

    def update(self, execution: Execution | None) -> bool:
        """Record a poll and return whether anything changed. The task itself reports the end of the execution."""
        memory = self._watch.memory
        if isinstance(execution, Running | Paused):
            last = memory.history.position if isinstance(execution, Paused) else {}  # it may report no position
            memory.history.position = last | _position(execution)
            self._paused_at = execution.doing if isinstance(execution, Paused) else ""
        elif execution or not self.has_content:
            return False
        before, self._reported = self._reported, self._current()
        if before[:2] != self._reported[:2]:
            memory.history.changed_at = self._watch.polled_at
        is_first, self.is_first = self.is_first, False
        return is_first or before != self._reported

    @property
    def has_content(self) -> bool:
        """Whether there is any progress or trouble to report."""
        return bool(self._watch.memory.seen or self._watch.memory.said_trouble)

    def as_dict(self) -> dict[str, Any]:
        """Return the progress at the last poll."""
        watch = self._watch
        state, doing, _, trouble = self._reported
        return {
            **begun(watch.kickoff_id, watch.started_at),
            **watch.memory.history.position,
            "state": state,
            "doing": doing,
            "since": watch.memory.history.changed_at or watch.memory.progress_since or watch.memory.started_at,
            "polled_at": watch.polled_at,
            "stale_after": _stale_after(watch.memory.pause),
            "deadline": watch.rules.deadline,
            "human_input": watch.rules.human_input,
            "steps": _steps(watch.memory.history.steps),
            "trouble": one_line(trouble, _MAX_TEXT),
            "tasks": _tasks([task.model_dump(mode="json") for task in watch.memory.history.tasks[-_MAX_TASKS:]]),
        }

    def _current(self) -> tuple[State, str, TaskResult | None, str]:
        """Return the values whose change is news. They are cheap to compare at each of many polls."""
        memory = self._watch.memory
        state: State = "running"
        if "paused" in memory.troubles:
            state = "paused"
        elif "unknown" in memory.troubles and memory.said_trouble:
            # Until the trouble is logged, the crew may just not know the new execution yet.
            state = "unknown"
        doing = self._paused_at or memory.progress
        # Compare the newest task, not the number of tasks: the oldest are dropped to make room.
        newest = memory.history.tasks[-1] if memory.history.tasks else None
        return state, doing, newest, memory.said_trouble


def begun(kickoff_id: str, started_at: float) -> dict[str, Any]:
    """Return the progress of an execution that has not been polled yet."""
    return {
        "version": _VERSION,
        "kickoff_id": kickoff_id,
        "state": "running",
        "doing": "",
        "unit": "task",
        **dict.fromkeys(("completed", "total", "current_task", "current_agent")),
        **dict.fromkeys(("started_at", "since", "polled_at"), started_at),
        "stale_after": _stale_after(0.0),
        "deadline": None,
        "human_input": False,
        "trouble": "",
        "steps": [],
        "tasks": [],
        "end": None,
    }


def completed(progress: Mapping[str, Any], result: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the progress of a completed execution, based on its previous progress."""
    took, steps = result.get("execution_time"), progress["steps"]
    # A large result that was read without the watch may list only the last task.
    tasks = max(_tasks(result.get("tasks") or ()), progress["tasks"], key=len)
    total = len(result["tasks"]) if result.get("tasks_complete") else progress["total"]
    return _ended(progress, now) | {
        "state": "completed",
        "doing": "completed" if took is None else f"completed after {duration(took)}",
        "completed": progress["completed"] if total is None else total,
        "total": total,
        "current_task": None,
        "current_agent": None,
        "steps": [*steps[:-1], *(step | {"ended_at": _last_poll(progress, now)} for step in steps[-1:])],
        "tasks": tasks,
    }


def ended(progress: Mapping[str, Any], error: errors.CrewError, now: float) -> dict[str, Any]:
    """Return the progress after a wait that ended without a result. The execution itself may keep running."""
    state = progress["state"]
    if not progress["kickoff_id"]:
        state = "none" if error.cost is errors.Cost.NONE else "unknown"
    match error:
        case errors.ExecutionFailed():
            state = "failed"
        case errors.ExecutionUnknown(has_completed=True) | errors.InvalidOutput():
            state = "completed"
        case errors.ExecutionUnknown() | errors.ExecutionNotFound():
            state = "unknown"
    end: dict[str, Any] = {name: one_line(text, _MAX_TEXT) for name, text in error.as_dict().items()}
    end["billed"] = error.billed
    if isinstance(error, errors.InvalidOutput):
        end["misfits"] = list(error.misfits)
    if "\n" in error.error.strip():
        end["reason"] = errors.storable_text(error.error.strip())[:_MAX_REASON]
    return _ended(progress, now) | {"state": state, "end": end}


def _ended(progress: Mapping[str, Any], now: float) -> dict[str, Any]:
    at = _last_poll(progress, now)
    # If no poll saw the execution running, it may have ended long before this one.
    started_at = progress["started_at"] if progress["doing"] else None
    return {**progress, "trouble": "", "started_at": started_at, "since": at, "polled_at": at}


def _stale_after(pause: float) -> float:
    """Return the seconds after a poll within which the next push follows, if all is well."""
    return timing.PROGRESS_REFRESH + pause + _GRACE


def _last_poll(progress: Mapping[str, Any], now: float) -> float:
    """Return the time of the last poll. The task may have resumed much later."""
    polled_at: float = progress["polled_at"]
    return polled_at if polled_at > (progress["started_at"] or 0.0) else now


def _position(execution: Running | Paused) -> dict[str, Any]:
    """Return the position of an execution, as far as the crew reports it."""
    names = {"current_task": execution.current_task, "current_agent": execution.current_agent}
    position: dict[str, Any] = {key: one_line(name, _MAX_NAME) for key, name in names.items() if name}
    return position | (execution.progress.model_dump() if execution.progress else {})


def _steps(steps: Sequence[SeenTask]) -> list[dict[str, Any]]:
    """Return the tasks or steps that polls saw in progress. The next one's start is the end of each."""
    ends = [*(step.started_at for step in steps[1:]), None]
    return [asdict(step) | {"ended_at": end} for step, end in zip(steps, ends, strict=False)]


def _tasks(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    newest = tasks[-_MAX_TASKS:]
    limit = min(_MAX_OUTPUT, _MAX_OUTPUTS // max(len(newest), 1))
    return [
        {
            "task_id": one_line(task["task_id"], _MAX_NAME),
            "agent": one_line(task["agent"], _MAX_NAME),
            "output": task["output"] if len(task["output"]) <= limit else f"{task['output'][:limit]}…",
            "execution_time": task["execution_time"],
        }
        for task in newest
    ]
