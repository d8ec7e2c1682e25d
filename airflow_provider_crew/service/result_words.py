"""The words for a result: what the tasks of the crew wrote, and what all of it took."""

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_crew.service.text import one_line, size
from airflow_provider_crew.service.watch_words import duration

_MOST_TASKS = 100
_NAME = 60
_USAGE = 300


def wrote(result: Mapping[str, Any]) -> Iterator[str]:
    """Tell one line for each task of the crew, with its number where all of them are there."""
    tasks = result["tasks"]
    for number, task in enumerate(tasks[:_MOST_TASKS], start=1):
        which = f"task {number} of {len(tasks)}, " if result["tasks_complete"] else "task "
        agent = f" ({one_line(task['agent'], _NAME)})" if task["agent"] else ""
        took = task["execution_time"]
        in_time = "" if took is None else f" in {duration(took)}"
        yield f"{which}{one_line(task['task_id'], _NAME)}{agent} wrote {size(task['output'])}{in_time}"
    if left := len(tasks[_MOST_TASKS:]):
        yield f"{left} more tasks"


def in_all(result: Mapping[str, Any]) -> Iterator[str]:
    """Tell how long all of it took and what it has spent, as far as the service says so."""
    took, usage = result["execution_time"], result["usage"]
    told = [] if took is None else [duration(took)]
    told += [f"{name} {count:,}" for name, count in (usage or {}).items()]
    if told:
        yield one_line(f"in all: {', '.join(told)}", _USAGE)
