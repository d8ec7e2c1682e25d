"""Executions: the kickoff that starts one, and its status, independent of the engine that does the work."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from airflow_provider_crew.local.scenario import Scenario

REVOKED = "The execution was revoked."


@dataclass(frozen=True)
class DoneTask:
    """Output of one task."""

    name: str
    agent: str | None
    description: str
    output: str
    seconds: float


@dataclass(frozen=True)
class Standing:
    """Status of an execution."""

    done: int
    """Number of completed tasks, without one whose work waits for human input."""
    over: bool
    seconds: float
    """Seconds of work, without the time spent waiting for human input."""
    error: str | None = None
    queued: bool = False
    waiting: bool = False
    """Whether the work of the next task waits for human input."""
    revoked: bool = False
    since: float = 0.0
    """Time at which this status began, in seconds after the start."""
    current: str | None = None
    agent: str | None = None
    total: int | None = None
    """Number of tasks, if known."""
    draft: str = ""
    """Draft for a person to check."""
    question: str = ""
    """ID of this request for human input."""
    tasks: tuple[DoneTask, ...] = ()
    output: str = ""
    json: JsonValue = None
    usage: Mapping[str, JsonValue] | None = None


@dataclass
class Kickoff:
    """One kickoff that was accepted."""

    kickoff_id: str
    inputs: dict[str, JsonValue]
    """Inputs that the crew received, which may differ from those that were sent."""
    meta: dict[str, JsonValue] | None
    webhooks: dict[str, JsonValue]
    """Callback URLs by their name in the request, and ``humanInputWebhook`` as it was sent."""
    events: dict[str, JsonValue] | None
    """Value of ``webhooks`` in the request: the events to send, and the URL to send them to."""
    restored_from: str | None
    """Execution whose state this one was asked to start from, known or unknown."""
    scenario: Scenario
    """Scenario of the server at the time of the kickoff."""
    started_at: float
    statuses: list[JsonValue] = field(default_factory=list)
    """Status bodies that a test has set instead of the true ones."""

    def next_scripted_status(self) -> JsonValue:
        """Return the next scripted body. The last one is repeated."""
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@dataclass
class Execution(Kickoff, ABC):
    """A kickoff and its execution."""

    @abstractmethod
    def standing(self, now: float) -> Standing:
        """Return the status of the execution at this time."""

    @abstractmethod
    def answer(self, now: float, *, approved: bool, feedback: str) -> None:
        """Apply a person's answer to the work that waits for it."""

    @abstractmethod
    def finish(self, now: float) -> None:
        """End at once, if possible."""

    @abstractmethod
    def revoke(self, now: float) -> None:
        """Revoke the execution, whatever its status."""


class Engine(Protocol):
    """Engine that does the work of executions."""

    def received(
        self, scenario: Scenario, given: dict[str, JsonValue], earlier: Execution | None
    ) -> dict[str, JsonValue]:
        """Return the inputs that the crew gets: those given, on top of the state of an earlier execution."""
        ...

    def begin(self, kickoff: Kickoff) -> Execution:
        """Start an execution."""
        ...
