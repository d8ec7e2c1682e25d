"""History of an execution's tasks from its polls, for its result and for display. No decision depends on it."""

import json
import sys
from collections.abc import Mapping
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

    def completed(self, execution: Completed, now: float) -> Completed:
        """Return a completed execution with what polls saw of its tasks, unless it lists all of them."""
        if execution.lists_tasks:
            return execution
        execution, began_at, took = execution.including(self.tasks), self.began_at, execution.execution_time
        # When as many tasks had completed. It is unknown for the first step, unless that is the first task.
        times = {step.number: step.started_at for step in reversed(self.steps[1:])}
        if began_at is not None:
            took = max(now - began_at, 0.0) if took is None else took
            total = execution.progress.total if execution.progress else None
            times |= {0: began_at, total: began_at + took}
        tasks = tuple(self._filled(task, times) for task in execution.tasks)
        return execution.model_copy(update={"execution_time": took, "tasks": tasks})

    def _filled(self, task: TaskResult, times: Mapping[int | None, float]) -> TaskResult:
        """Return a task with the agent and the duration that polls saw, as far as it lacks them."""
        name, took = one_line(task.task_id, _MAX_NAME), task.execution_time
        same = [step for step in self.steps if step.task_id == name]
        if len(same) != 1:
            return task
        step = same[0]
        if took is None and step.number is not None and {step.number, step.number + 1} <= times.keys():
            took = round(max(times[step.number + 1] - times[step.number], 0.0), 1)
        return task.model_copy(update={"agent": task.agent or step.agent, "execution_time": took})


def carried(history: dict[str, Any]) -> dict[str, Any]:
    """Return a history as plain data with only its newest tasks, which another process may get."""
    return history | {name: _newest(history[name]) for name in ("tasks", "steps")}


def _newest(items: list[Any]) -> list[Any]:
    sizes = accumulate(len(json.dumps(item)) for item in reversed(items))
    return items[len(items) - sum(size <= _MOST_CARRIED for size in sizes) :]


def _size(task: TaskResult) -> int:
    """Return the memory size of a task's texts without encoding them."""
    return sum(map(sys.getsizeof, (task.task_id, task.agent, task.output)))
