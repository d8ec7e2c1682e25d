"""
Executions: what a kickoff starts.

Where an execution stands follows from its tasks, from what was done to it and when, and from the time. Nothing
runs in the background, so thousands cost nothing and a test can move the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import JsonValue

    from airflow_provider_crew.local.scenario import Scenario, ScenarioTask

_REVOKED = "The execution was revoked."
_NO_APPROVALS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True)
class Standing:
    """How far an execution has come."""

    done: int
    """How many tasks are done. One whose work waits for a person is not."""
    over: bool
    seconds: float
    """The seconds of work, without those in which it waited for a person."""
    error: str | None = None
    waiting: bool = False
    """Whether a person has to look at the work of the next task."""
    revoked: bool = False
    since: float = 0.0
    """When it came to stand so, in seconds after the start."""


@dataclass
class Execution:
    """One kickoff that was taken. It keeps the scenario it was started with."""

    kickoff_id: str
    inputs: dict[str, JsonValue]
    """What the crew got, which need not be all that was sent."""
    meta: dict[str, JsonValue] | None
    webhooks: dict[str, str]
    """The callback addresses given, by the name they have in the request."""
    events: dict[str, JsonValue] | None
    """What the request has as ``webhooks``: which events to send, and where to."""
    restored_from: str | None
    """The execution whose state this one was asked to start from, whether or not it is known."""
    scenario: Scenario
    started_at: float
    statuses: list[JsonValue] = field(default_factory=list)
    approved_at: dict[int, float] = field(default_factory=dict)
    """When a person approved of the work of a task, by the number of the task."""
    finished_at: float | None = None
    revoked_at: float | None = None

    def standing(self, now: float) -> Standing:
        """Tell where the execution stands at this time."""
        if self.revoked_at is None or now < self.revoked_at:
            return self._unrevoked(now)
        then = self._unrevoked(self.revoked_at)
        since = self.revoked_at - self.started_at
        return replace(then, over=True, error=_REVOKED, waiting=False, revoked=True, since=since)

    def next_scripted_status(self) -> JsonValue:
        """Take the next scripted body; the last one is never used up."""
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def _unrevoked(self, now: float) -> Standing:
        if self.finished_at is None or now < self.finished_at:
            return self._unhurried(now)
        then = self._unhurried(self.finished_at)
        if then.over:
            return then
        return replace(self._unhurried(math.inf), since=self.finished_at - self.started_at)

    def _unhurried(self, now: float) -> Standing:
        approvals = {task: at - self.started_at for task, at in self.approved_at.items()}
        return standing(self.scenario.tasks, now - self.started_at, approvals)


def standing(
    tasks: Sequence[ScenarioTask], elapsed: float, approvals: Mapping[int, float] = _NO_APPROVALS
) -> Standing:
    """
    Tell how far the tasks are after so many seconds. A task without seconds is done at the first look.

    ``approvals`` tells after how many seconds a person approved, by the number of the task.
    """
    begin = worked = waited = 0.0
    for done, task in enumerate(tasks):
        end = begin + task.seconds
        if elapsed < end:
            return Standing(done, over=False, seconds=elapsed - waited, since=begin)
        worked += task.seconds
        if task.error is not None:
            return Standing(done, over=True, seconds=worked, error=task.error, since=end)
        begin = approvals.get(done, end + task.patience)
        if elapsed < begin:
            return Standing(done, over=False, seconds=worked, waiting=True, since=end)
        waited += begin - end
    return Standing(len(tasks), over=True, seconds=worked, since=begin)
