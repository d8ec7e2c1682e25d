"""What a watch goes by, what it remembers, and what it says: plain data, which travels from process to process."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeGuard

from pydantic import TypeAdapter, ValidationError

from airflow_provider_crew.defaults import MAX_OUTAGE
from airflow_provider_crew.service.errors import InvalidSettings
from airflow_provider_crew.service.models import TaskResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_crew.service.errors import CrewError
    from airflow_provider_crew.service.models import Completed

_TOKEN_PATIENCE = 120.0
# In the year 2242. What lies beyond cannot be slept for, and comes from no clock.
_LAST_TIME = 2.0**33
# A trigger's row and a task's state are no place for what a crew puts out; the newest tasks are worth carrying.
_MOST_CARRIED = 16 * 1024
_TASKS = TypeAdapter(list[TaskResult])


@dataclass(slots=True)
class Looks:
    """How often one has looked, in vain, and how often the crew was found to have begun to wait for a person."""

    all: int = 0
    failed: int = 0
    paused: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line for the log."""

    level: int
    text: str


class Step(NamedTuple):
    """What to do after a look: log the lines, then end with a result or an error, or look again later."""

    lines: tuple[Line, ...] = ()
    completed: Completed | None = None
    error: CrewError | None = None
    look_again_in: float = 0.0
    renew_token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """
    How one execution is watched.

    ``deadline`` and ``kicked_off_at`` are wall-clock times. ``poll_interval`` is the time between two looks; None:
    what suits the age of the execution. ``max_outage`` is how long the service may give no usable answer; None:
    for ever. ``kicked_off_at`` allows for a service that needs a moment until it knows the execution.

    ``exists``: the service itself has given out the id, so that the execution exists even while the service says
    that it does not know it. ``address`` is where it was kicked off, if that is known. ``human_input``: the crew
    may wait for a person, who may take until the deadline.
    """

    deadline: float
    poll_interval: float | None = None
    max_outage: float | None = MAX_OUTAGE
    token_patience: float = _TOKEN_PATIENCE
    kicked_off_at: float | None = None
    exists: bool = False
    address: str = ""
    human_input: bool = False

    def __post_init__(self) -> None:
        """Refuse what would look without a pause, or for ever."""
        if self.poll_interval is not None and not (is_time(self.poll_interval) and self.poll_interval > 0):
            raise InvalidSettings("The poll interval must be a number of seconds above 0.", field="poll_interval")
        if not is_time(self.deadline):
            raise InvalidSettings("The time to wait must be a number of seconds.", field="timeout")
        if not (self.max_outage is None or self.max_outage == math.inf or is_time(self.max_outage)):
            raise InvalidSettings("The longest outage must be a number of seconds.", field="max_outage")
        if not (self.kicked_off_at is None or is_time(self.kicked_off_at)):
            raise InvalidSettings("The time of the kickoff must be a number of seconds.", field="kicked_off_at")


@dataclass(slots=True)
class WatchMemory:
    """What a watch has seen so far: plain data, so that the next process can go on where this one ended."""

    started_at: float
    seen: bool = False
    """Whether the service has known the execution at any look."""
    paused: bool = False
    """Whether the crew waits for a person, as far as its service tells that."""
    progress: str = ""
    progress_since: float = 0.0
    said_at: float = 0.0
    strange_words: list[str] = field(default_factory=list)
    silent_since: float | None = None
    rejected_since: float | None = None
    unknown_since: float | None = None
    trouble: str = ""
    tasks: list[dict[str, Any]] = field(default_factory=list)
    """What the crew's tasks have put out, as far as the service told it: some tell the last one alone."""

    @classmethod
    def recalled(cls, kept: Any) -> Self | None:
        """
        Return what another process has kept, of which another version of this package may know more.

        What makes no sense is left out; without a beginning there is nothing to go on with.
        """
        if not isinstance(kept, Mapping) or not is_time(kept.get("started_at")):
            return None
        known = [each.name for each in fields(cls) if each.name in kept]
        return cls(**{name: kept[name] for name in known if _FITS.get(name, is_time)(kept[name])})

    def carried(self) -> dict[str, Any]:
        """Return it as plain data, with as many of the newest tasks as are worth carrying."""
        return asdict(replace(self, tasks=_newest(self.tasks)))

    def handed_over(self) -> dict[str, Any]:
        """
        Return it for a process that may begin, or begin again, much later.

        How long a trouble has lasted is counted anew there.
        """
        return self.carried() | dict.fromkeys(("silent_since", "rejected_since", "unknown_since"))

    def task_results(self) -> list[TaskResult]:
        """Return what the crew's tasks have put out."""
        return _TASKS.validate_python(self.tasks)


def is_time(value: Any) -> TypeGuard[float]:
    """Whether a value, perhaps from another process, is a number of seconds that can be reckoned with."""
    return isinstance(value, int | float) and abs(value) <= _LAST_TIME


def _newest(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    room = _MOST_CARRIED
    kept: list[dict[str, Any]] = []
    for task in reversed(tasks):
        room -= len(json.dumps(task))
        if room < 0:
            break
        kept.insert(0, task)
    return kept


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_tasks(value: Any) -> bool:
    try:
        _TASKS.validate_python(value)
    except ValidationError:
        return False
    return isinstance(value, list)


_FITS = {
    "progress": _is_text,
    "trouble": _is_text,
    "strange_words": _are_texts,
    "seen": _is_truth,
    "paused": _is_truth,
    "tasks": _are_tasks,
}
