"""
Executions: what a kickoff starts.

Where an execution stands follows from its tasks and the time alone. Nothing runs in the background, so
thousands cost nothing and a test can move the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import JsonValue

    from airflow_provider_crew.local.scenario import Scenario, ScenarioTask


@dataclass(frozen=True)
class Standing:
    """How far an execution has come."""

    done: int
    over: bool
    seconds: float
    error: str | None = None


@dataclass
class Execution:
    """One kickoff that was taken. It keeps the scenario it was started with."""

    kickoff_id: str
    inputs: dict[str, JsonValue]
    meta: dict[str, JsonValue] | None
    webhooks: dict[str, str]
    """The callback addresses given, by the name they have in the request."""
    scenario: Scenario
    started_at: float
    hurried: bool = False
    statuses: list[JsonValue] = field(default_factory=list)

    def standing(self, now: float) -> Standing:
        """Tell where the execution stands at this time."""
        return standing(self.scenario.tasks, float("inf") if self.hurried else now - self.started_at)

    def next_scripted_status(self) -> JsonValue:
        """Take the next scripted body; the last one is never used up."""
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


def standing(tasks: Sequence[ScenarioTask], elapsed: float) -> Standing:
    """Tell how far the tasks are after so many seconds. A task without seconds is done at the first look."""
    ends = list(accumulate(task.seconds for task in tasks))
    for done, (task, end) in enumerate(zip(tasks, ends, strict=True)):
        if elapsed < end:
            return Standing(done=done, over=False, seconds=elapsed)
        if task.error is not None:
            return Standing(done=done, over=True, seconds=end, error=task.error)
    return Standing(done=len(tasks), over=True, seconds=ends[-1])
