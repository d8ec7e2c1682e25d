"""History of an execution's tasks from its polls, for its result and for display. No decision depends on it."""

import json
import sys
from itertools import accumulate
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from airflow_provider_crew.client.models import Completed, Paused, Running, TaskResult, Time
from airflow_provider_crew.client.text import one_line

_MAX_NAME = 200
_MOST_STEPS = 50
# Outputs are too large for a trigger's row or the task state store. Only the newest tasks are kept.
_MOST_CARRIED = 16 * 1024
# A triggerer keeps thousands of watches in memory for days.
_MOST_KEPT = 64 * 1024

# Build at first use: a task that resumes with a result needs neither.
WHEN_USED = ConfigDict(defer_build=True)


@dataclass(slots=True, config=WHEN_USED)
class SeenTask:
    """Task of a crew or step of a flow in progress, the number of those before it, and the first such poll."""

    task_id: str
    agent: str
    number: int | None
    started_at: Time


@dataclass(slots=True, config=WHEN_USED)
class History:
    """Tasks of one execution as plain data, so that the next process can add to them."""

    tasks: list[TaskResult] = Field(default_factory=list)
    """Outputs of the crew's tasks, as far as they were seen. Some crews report only the last task."""
    steps: list[SeenTask] = Field(default_factory=list)
    """Newest tasks or steps that polls saw in progress."""
    began_at: Time | None = None
    """Start time of the execution. ``None`` if the crew does not report how long it has run."""
    position: dict[str, Any] = Field(default_factory=dict)
    """Last known position. The full response would be too large."""
    changed_at: Time = 0.0
    """Time at which a poll last saw another position or state."""

    def follow(self, execution: Running | Paused, now: float) -> None:
        """Keep the output of the last task, and the task in progress."""
        self.keep(execution.last_task)
        if self.began_at is None and execution.duration is not None:
            self.began_at = max(now - execution.duration, 0.0)
        name = one_line(execution.current_task or "", _MAX_NAME)
        number = execution.progress.completed if execution.progress else None
        last = self.steps[-1] if self.steps else None
        if name and (last is None or (last.task_id, last.number) != (name, number)):
            agent = one_line(execution.current_agent or "", _MAX_NAME)
            self.steps = [*self.steps, SeenTask(name, agent, number, now)][-_MOST_STEPS:]

    def keep(self, task: TaskResult | None) -> None:
        """Keep the output of a task if it is new, and drop the oldest outputs beyond the size limit."""
        tasks = self.tasks
        if task is None or task in reversed(tasks) or _size(task) > _MOST_KEPT:
            return
        tasks.append(task)
        while sum(map(_size, tasks)) > _MOST_KEPT:
            tasks.pop(0)

    def added_to(self, execution: Completed) -> Completed:
        """Return a completed execution with the tasks that polls saw, unless it lists all of them."""
        if execution.lists_tasks or not self.tasks:
            return execution
        return execution.model_copy(update={"tasks": tuple(dict.fromkeys((*self.tasks, *execution.tasks)))})


def carried(history: dict[str, Any]) -> dict[str, Any]:
    """Return a history as plain data with only its newest tasks, which another process may get."""
    return history | {name: _newest(history[name]) for name in ("tasks", "steps")}


def _newest(items: list[Any]) -> list[Any]:
    sizes = accumulate(len(json.dumps(item)) for item in reversed(items))
    return items[len(items) - sum(size <= _MOST_CARRIED for size in sizes) :]


def _size(task: TaskResult) -> int:
    """Return the memory size of a task's texts without encoding them."""
    return sum(map(sys.getsizeof, (task.task_id, task.agent, task.output)))
