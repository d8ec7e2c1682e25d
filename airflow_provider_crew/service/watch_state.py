"""What a watch goes by, what it remembers, and what it says: plain data, which travels from process to process."""

import json
import sys
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from airflow_provider_crew.service.errors import CrewError
from airflow_provider_crew.service.limits import MAX_OUTAGE
from airflow_provider_crew.service.models import Completed, TaskResult

# In the year 2242. What lies beyond cannot be slept for, and comes from no clock.
_LAST_TIME = 2.0**33
# A trigger's row and a task's state are no place for what a crew puts out; the newest tasks are worth carrying.
_MOST_CARRIED = 16 * 1024
# A triggerer keeps thousands of watches in memory, for days.
_MOST_KEPT = 64 * 1024

# Built when first used: a task that resumes with a result needs neither.
_WHEN_USED = ConfigDict(defer_build=True)

Time = Annotated[float, Field(strict=True, ge=-_LAST_TIME, le=_LAST_TIME)]
Interval = Annotated[float, Field(strict=True, gt=0, le=_LAST_TIME)]
Pause = Annotated[float, Field(strict=True, ge=0, le=_LAST_TIME)]
Patience = Annotated[float, Field(strict=True, ge=0)]
# How far an execution is that nobody has seen yet.
NOTHING_SEEN = "nothing"
# Each tells more of the execution than those before it.
Trouble = Literal["rejected", "silent", "unknown", "paused"]


@dataclass(slots=True)
class Polls:
    """How often one has polled, how often in vain, and how often the crew had begun to wait for a person."""

    all: int = 0
    failed: int = 0
    paused: int = 0


class Line(NamedTuple):
    """One line for the log."""

    level: int
    text: str


class Step(NamedTuple):
    """What to do after a poll: log the lines, then end with a result or an error, or poll again later."""

    lines: tuple[Line, ...] = ()
    completed: Completed | None = None
    error: CrewError | None = None
    poll_again_in: float = 0.0
    renew_token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, config=_WHEN_USED)
class WatchRules:
    """
    How one execution is watched. What would poll without a pause, or for ever, is refused.

    ``deadline`` and ``kicked_off_at`` are wall-clock times. ``poll_interval`` is the time between two polls; None:
    what suits the age of the execution. ``max_outage`` is how long the service may give no usable answer; None:
    for ever. ``kicked_off_at`` allows for a service that needs a moment until it knows the execution.

    ``exists``: the service itself has given out the id, so that the execution exists even while the service says
    that it does not know it. ``address`` is where it was kicked off, if that is known. ``human_input``: the crew
    may wait for a person, who may take until the deadline.
    """

    deadline: Time
    poll_interval: Interval | None = None
    max_outage: Patience | None = MAX_OUTAGE
    kicked_off_at: Time | None = None
    exists: StrictBool = False
    address: str = ""
    human_input: StrictBool = False


@dataclass(slots=True, config=_WHEN_USED)
class WatchMemory:
    """What a watch has seen so far: plain data, so that the next process can go on where this one ended."""

    started_at: Time
    seen: StrictBool = False
    """Whether the service has known the execution at any poll."""
    progress: str = NOTHING_SEEN
    """What was seen of it last, in words."""
    place: str = ""
    """At which task or step it was seen last."""
    progress_since: Time = 0.0
    step: Annotated[int, Field(ge=0, le=2**53)] = 0
    """The number of the task, or step, that the log was told of last."""
    said_at: Time = 0.0
    troubles: dict[Trouble, Time | None] = Field(default_factory=dict)
    """What is in the way, and since when: None where another process is to count that anew."""
    said_trouble: str = ""
    """What the log was last told of them."""
    said_about: str = ""
    """The kind of trouble that was. Its text may hold the ID of a request, which differs at every poll."""
    polled_at: Time = 0.0
    """When the last poll came back."""
    pause: Pause = 0.0
    """Seconds from then to the next poll."""
    tasks: list[TaskResult] = Field(default_factory=list)
    """What the crew's tasks have put out, as far as the service told it: some tell the last one alone."""

    @classmethod
    def recalled(cls, kept: Any) -> "WatchMemory | None":
        """Return what another process has kept, perhaps of another version; None when it makes no sense."""
        try:
            return _MEMORY.validate_python(kept)
        except ValidationError:
            return None

    def keep(self, task: TaskResult) -> None:
        """Keep what a task has put out, if it is new, and of all tasks as many of the newest as fit."""
        tasks = self.tasks
        if task in reversed(tasks) or _size(task) > _MOST_KEPT:
            return
        tasks.append(task)
        left_over = sum(map(_size, tasks)) - _MOST_KEPT
        while left_over > 0:
            left_over -= _size(tasks.pop(0))

    def carried(self) -> dict[str, Any]:
        """Return it as plain data, with as many of the newest tasks as are worth carrying."""
        needless = set() if self.said_about else {"said_about"}
        if not self.troubles.keys() - {"paused"}:  # nothing lasts that a clock could stretch
            needless |= {"polled_at", "pause"}
        kept: dict[str, Any] = _MEMORY.dump_python(self, exclude=needless)
        newest_first = kept["tasks"][::-1]
        sizes = accumulate(len(json.dumps(task)) for task in newest_first)
        fitting = sum(size <= _MOST_CARRIED for size in sizes)
        return kept | {"tasks": newest_first[:fitting][::-1]}

    def handed_over(self) -> dict[str, Any]:
        """
        Return it for a process that may begin, or begin again, much later.

        How long a trouble has lasted is counted anew there.
        """
        return self.carried() | {"troubles": dict.fromkeys(self.troubles)}


def _size(task: TaskResult) -> int:
    """Return how much memory a task's texts take, without reading them."""
    return sum(map(sys.getsizeof, (task.task_id, task.agent, task.output)))


_MEMORY = TypeAdapter(WatchMemory)
