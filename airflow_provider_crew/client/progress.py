"""
Progress of an execution as one JSON object for display, whichever process polls.

The object is short, because it may be written often. It is informational, so no code may depend on it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow_provider_crew.client.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionNotFound,
    ExecutionUnknown,
    storable_text,
)
from airflow_provider_crew.client.models import Execution, Paused, Running, TaskResult
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.client.watch import NOTHING_SEEN, Watch, describe_progress, duration

# XCom key of the progress.
PROGRESS = "crew_progress"
# Seconds between two updates of one execution. Later news replaces earlier news.
PAUSE = 5.0

State = Literal["running", "paused", "unknown", "completed", "failed"]

# All keys that where() can return.
NOWHERE = dict.fromkeys(("unit", "completed", "total", "current_task", "current_agent"))

_VERSION = 1
_NAME = 200
_SAID = 1_000
_OUTPUT = 2_000
# Limit for the outputs of all tasks together.
_OUTPUTS = 8 * _OUTPUT
_MOST_TASKS = 100
# Other errors add nothing about the state of the execution.
_ENDS: tuple[tuple[type[CrewError], State], ...] = (
    (ExecutionFailed, "failed"),
    (ExecutionNotFound, "unknown"),
    (ExecutionUnknown, "unknown"),
)


class ProgressReport:
    """
    Progress of one watch. Detects changes since the last poll.

    The first poll is always news, because Airflow may have deleted what an earlier process reported.
    """

    __slots__ = ("_is_first", "_paused_at", "_since", "_told", "_watch", "_where")

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._where: dict[str, Any] = {}
        """Position only. The full answer would be too large, because a triggerer keeps thousands between polls."""
        self._paused_at = ""
        self._told = self._what_counts()
        self._is_first = True
        self._since = watch.memory.progress_since or watch.memory.started_at

    def saw(self, execution: Execution | None) -> bool:
        """Record a poll and return whether anything changed. The task itself reports the end of the execution."""
        if isinstance(execution, Running | Paused):
            self._where = where(execution)
            for name in ("current_task", "current_agent"):
                self._where[name] = _short(self._where[name])
            self._paused_at = describe_progress(execution) if isinstance(execution, Paused) else ""
        elif execution or not self.tells:
            return False
        told, self._told = self._told, self._what_counts()
        if told[:2] != self._told[:2]:
            self._since = self._watch.polled_at
        is_first, self._is_first = self._is_first, False
        return is_first or told != self._told

    @property
    def tells(self) -> bool:
        """Whether there is any progress or trouble to report."""
        return bool(self._watch.memory.seen or self._watch.memory.said_trouble)

    def told(self) -> dict[str, Any]:
        """Return the progress at the last poll."""
        watch = self._watch
        state, doing, _, trouble = self._told
        known = begun(watch.kickoff_id, watch.started_at) | self._where
        return known | {
            "state": state,
            "doing": doing,
            "since": self._since,
            "polled_at": watch.polled_at,
            "trouble": one_line(trouble, _SAID),
            "tasks": _tasks(watch.memory.tasks),
        }

    def _what_counts(self) -> tuple[State, str, TaskResult | None, str]:
        """Return the values whose change is news. They are cheap to compare at each of many polls."""
        memory = self._watch.memory
        # Compare the newest task, not the number of tasks: the oldest are dropped to make room.
        newest = memory.tasks[-1] if memory.tasks else None
        return self._state(), self._doing(), newest, memory.said_trouble

    def _state(self) -> State:
        memory = self._watch.memory
        if "paused" in memory.troubles:
            return "paused"
        # Until the trouble is logged, the service may just not know the new execution yet.
        return "unknown" if "unknown" in memory.troubles and memory.said_trouble else "running"

    def _doing(self) -> str:
        seen = self._watch.memory.progress
        return self._paused_at or ("" if seen == NOTHING_SEEN else seen)


def begun(kickoff_id: str, started_at: float) -> dict[str, Any]:
    """Return the progress of an execution that has not been polled yet."""
    return {
        "version": _VERSION,
        "kickoff_id": storable_text(kickoff_id),
        "state": "running",
        "doing": "",
        "unit": "task",
        "completed": None,
        "total": None,
        "current_task": None,
        "current_agent": None,
        "started_at": started_at,
        "since": started_at,
        "polled_at": started_at,
        "trouble": "",
        "tasks": [],
        "end": None,
    }


def completed(told: Mapping[str, Any], result: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the progress of a completed execution, based on its previous progress."""
    took = result.get("execution_time")
    # A large result that was read without the watch may list only the last task.
    tasks = max(_tasks(result.get("tasks") or ()), told["tasks"], key=len)
    total = told["total"] or (len(tasks) if result.get("tasks_complete") else None)
    return _over(told, now) | {
        "state": "completed",
        "doing": "completed" if took is None else f"completed after {duration(took)}",
        "completed": told["completed"] if total is None else total,
        "total": total,
        "current_task": None,
        "current_agent": None,
        "tasks": tasks,
    }


def ended(told: Mapping[str, Any], error: CrewError, now: float) -> dict[str, Any]:
    """Return the progress after a wait that ended without a result. The execution itself may keep running."""
    state = next((state for kind, state in _ENDS if isinstance(error, kind)), told["state"])
    if isinstance(error, ExecutionUnknown) and error.has_completed:
        state = "completed"
    return _over(told, now) | {
        "state": state,
        "end": {name: one_line(line, _SAID) for name, line in error.as_dict().items()},
    }


def where(execution: Running | Paused) -> dict[str, Any]:
    """Return the position of an execution, as far as the service reports it."""
    known = {"current_task": execution.current_task, "current_agent": execution.current_agent}
    if count := execution.progress:
        return known | {"unit": count.unit, "completed": count.completed, "total": count.total}
    return known


def _over(told: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {**told, "trouble": "", "since": now, "polled_at": now}


def _tasks(tasks: Sequence[TaskResult | Mapping[str, Any]]) -> list[dict[str, Any]]:
    newest = tasks[-_MOST_TASKS:]
    most = min(_OUTPUT, _OUTPUTS // max(len(newest), 1))
    return [_task(task if isinstance(task, Mapping) else task.model_dump(mode="json"), most) for task in newest]


def _task(task: Mapping[str, Any], most: int) -> dict[str, Any]:
    output = str(task.get("output") or "")
    return {
        "task_id": one_line(str(task.get("task_id") or ""), _NAME),
        "agent": one_line(str(task.get("agent") or ""), _NAME),
        "output": output if len(output) <= most else f"{output[:most]}…",
        "execution_time": task.get("execution_time"),
    }


def _short(name: str | None) -> str | None:
    return name and one_line(name, _NAME)
