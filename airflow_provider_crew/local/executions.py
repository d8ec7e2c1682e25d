"""Executions: what a kickoff starts, and how one stands, whoever does the work."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from airflow_provider_crew.local.scenario import Scenario

REVOKED = "The execution was revoked."


@dataclass(frozen=True)
class DoneTask:
    """What one task has put out."""

    name: str
    agent: str | None
    description: str
    output: str
    seconds: float


@dataclass(frozen=True)
class Standing:
    """How far an execution has come."""

    done: int
    """How many tasks are done. One whose work waits for a person is not."""
    over: bool
    seconds: float
    """The seconds of work, without those in which it waited for a person."""
    error: str | None = None
    queued: bool = False
    waiting: bool = False
    """Whether a person has to look at the work of the next task."""
    revoked: bool = False
    since: float = 0.0
    """When it came to stand so, in seconds after the start."""
    current: str | None = None
    agent: str | None = None
    total: int | None = None
    """How many tasks there are, if anybody knows."""
    draft: str = ""
    """What a person is to look at."""
    question: str = ""
    """What tells this wait for a person from any other."""
    tasks: tuple[DoneTask, ...] = ()
    output: str = ""
    json: JsonValue = None
    usage: Mapping[str, JsonValue] | None = None


@dataclass
class Kickoff:
    """One kickoff that was taken."""

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
    """What the service was like when it was taken."""
    started_at: float
    statuses: list[JsonValue] = field(default_factory=list)
    """Bodies that a test wants to have told instead of the truth."""

    def next_scripted_status(self) -> JsonValue:
        """Take the next scripted body; the last one is never used up."""
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@dataclass
class Execution(Kickoff, ABC):
    """A kickoff and what becomes of it."""

    @abstractmethod
    def standing(self, now: float) -> Standing:
        """Tell where the execution stands at this time."""

    @abstractmethod
    def answer(self, now: float, *, approved: bool, feedback: str) -> None:
        """Hear what a person says to the work that waits."""

    @abstractmethod
    def finish(self, now: float) -> None:
        """Be over at once, if that can be."""

    @abstractmethod
    def revoke(self, now: float) -> None:
        """Be revoked, wherever it stands."""


class Engine(Protocol):
    """Who does the work of executions."""

    def received(
        self, scenario: Scenario, given: dict[str, JsonValue], earlier: Execution | None
    ) -> dict[str, JsonValue]:
        """Return the inputs that the crew gets of those given, on top of the state of an earlier execution."""
        ...

    def begin(self, kickoff: Kickoff) -> Execution:
        """Begin to work."""
        ...
