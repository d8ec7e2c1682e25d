"""The processes that Airflow starts for its tasks, as its API server hears of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

# Every process that runs a task says so once before it does, and once more when the task ends, defers or waits for
# its next turn.
_SAID = re.compile(
    r"^(?P<time>\S+) .*\[http\.access\] .* method=PATCH path=/execution/task-instances/(?P<task>[0-9a-f-]+)"
    r"/(?P<what>run|state) .*status_code=2",
    flags=re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Use:
    """How many worker processes were started for some tasks, and how long they were held, together."""

    processes: int
    seconds: float


def use_of_workers(access_log: Path, tasks: Collection[str]) -> Use:
    """Read what these task instances cost."""
    running: dict[str, float] = {}
    seconds = []
    for task, what, at in _said(access_log):
        if task not in tasks:
            continue
        if what == "run":
            running[task] = at
        elif task in running:
            seconds.append(at - running.pop(task))
    return Use(len(seconds) + len(running), sum(seconds))


def _said(access_log: Path) -> Iterator[tuple[str, str, float]]:
    for said in _SAID.finditer(access_log.read_text(encoding="utf-8", errors="replace")):
        yield said["task"], said["what"], datetime.fromisoformat(said["time"]).timestamp()
