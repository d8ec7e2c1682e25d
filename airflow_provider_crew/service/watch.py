"""
What each look at an execution means, and when to look again.

Whoever waits (hook, operator, sensor, trigger) feeds in what a look brought and does what the step says, so all
of them decide alike and in the same words. No I/O happens here; the clock and the random source are passed in.
Times are wall-clock, because a deadline has to survive the restart of the process that watches.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeGuard

from airflow_provider_crew.defaults import LONGEST_INTERVAL, MAX_OUTAGE, NOT_FOUND_GRACE, SHORTEST_INTERVAL
from airflow_provider_crew.service.errors import (
    CallError,
    CrewError,
    ExecutionFailed,
    ExecutionNotFound,
    InvalidSettings,
    LostContact,
    NotAllowed,
    NotAuthenticated,
    TransientError,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.service.models import Completed, Failed, Running
from airflow_provider_crew.service.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

_JITTER = 0.1
_LONGEST_SPREAD = 15.0
_SHARE_OF_AGE = 0.05
_LONGEST_RETRY_AFTER = 300.0
_TOKEN_PATIENCE = 120.0
_REMINDER = 300.0
# In the year 2242. What lies beyond cannot be slept for, and comes from no clock.
_LAST_TIME = 2.0**33

# What the crew says may be as long as an answer; logs, errors and what is stored may not.
_PROGRESS = 200
_WORD = 100
_MOST_STRANGE_WORDS = 10
_SHOWN_ERROR = 2_000
_KEPT_ERROR = 64 * 1024


@dataclass(slots=True)
class Looks:
    """How often one has looked, and how many looks brought no answer."""

    all: int = 0
    failed: int = 0


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
    what suits the age of the execution. ``max_outage`` is how long the service may give no
    usable answer; None: for ever. ``kicked_off_at`` allows for a service that needs a moment until it knows the
    execution.
    """

    deadline: float
    poll_interval: float | None = None
    max_outage: float | None = MAX_OUTAGE
    token_patience: float = _TOKEN_PATIENCE
    kicked_off_at: float | None = None

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
    progress: str = ""
    progress_since: float = 0.0
    said_at: float = 0.0
    strange_words: list[str] = field(default_factory=list)
    silent_since: float | None = None
    rejected_since: float | None = None
    unknown_since: float | None = None
    trouble: str = ""

    @classmethod
    def recalled(cls, kept: Any) -> Self | None:
        """
        Return what another process has kept, of which another version of this package may know more.

        What makes no sense is left out; without a beginning there is nothing to go on with.
        """
        if not isinstance(kept, Mapping) or not is_time(kept.get("started_at")):
            return None
        fits = {"progress": _is_text, "trouble": _is_text, "strange_words": _are_texts}
        known = [each.name for each in fields(cls) if each.name in kept]
        return cls(**{name: kept[name] for name in known if fits.get(name, is_time)(kept[name])})


class Watch:
    """Watches one execution: remembers what was seen and decides what comes next."""

    def __init__(
        self,
        kickoff_id: str,
        rules: WatchRules,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        memory: WatchMemory | None = None,
    ) -> None:
        self.kickoff_id = kickoff_id
        self.memory = memory or WatchMemory(started_at=clock(), said_at=clock())
        self.looks = Looks()
        self._rules = rules
        self._clock = clock
        self._random = random
        self._seen: Running | None = None

    def spread(self) -> Step:
        """
        Put off the first look, so that many watches that begin in one instant do not look in one instant.

        Not for long: after a restart of the triggerer nobody may have looked for a while.
        """
        left = max(self._rules.deadline - self._clock(), 0.0)
        return Step(look_again_in=min(self._random() * min(self._interval(), _LONGEST_SPREAD), left))

    def saw(self, execution: Running | Completed | Failed) -> Step:
        """Decide after an answer."""
        self.looks.all += 1
        lines = self._recovered()
        match execution:
            case Completed():
                return Step((*lines, self._line(_ended_well(execution))), completed=execution)
            case Failed():
                return Step(tuple(lines), error=_execution_failed(execution))
        if execution is not self._seen:
            self._seen = execution
            lines += self._warn_of_strange_word(execution)
            lines += self._report_progress(describe_progress(execution))
        else:
            lines += self._report_progress(self.memory.progress)
        return self._look_again(lines)

    def failed(self, error: CallError) -> Step:
        """Decide after a look that brought no answer."""
        self.looks.all += 1
        self.looks.failed += 1
        now = self._clock()
        match error:
            case NotAuthenticated() | NotAllowed():
                return self._rejected(error, now)
            case ExecutionNotFound():
                return self._unknown(error, now)
            case TransientError():
                return self._silence(error, now)
        return Step(error=self._broken(error))

    def token_renewed(self) -> None:
        """Take note that the connection held another token when it was read anew."""
        self.memory.rejected_since = None

    def _unknown(self, error: ExecutionNotFound, now: float) -> Step:
        """Give the service a moment: it may not know the execution yet, or one of its machines not any more."""
        if self.memory.unknown_since is None:
            self.memory.unknown_since = now
        seen_before = bool(self.memory.progress)
        since = self.memory.unknown_since if seen_before else self._rules.kicked_off_at
        if since is None or now - since >= NOT_FOUND_GRACE:
            return Step(error=error)
        grace = duration(NOT_FOUND_GRACE)
        told = f"the crew does not know it any more. Looking on for {grace}, in case that passes."
        lines = self._in_trouble(told) if seen_before else []
        return self._look_again(lines, within=NOT_FOUND_GRACE / 6)

    def _rejected(self, error: CallError, now: float) -> Step:
        if self.memory.rejected_since is None:
            self.memory.rejected_since = now
        left = self.memory.rejected_since + self._rules.token_patience - now
        if left <= 0:
            return Step(error=self._broken(error))
        lines = self._in_trouble(
            f"{error} The execution goes on. The connection is read anew before the next look, in case the token "
            f"was rotated; giving up after {duration(self._rules.token_patience)}."
        )
        return self._look_again(lines, at_most=left, renew_token=True)

    def _silence(self, error: TransientError, now: float) -> Step:
        self.memory.rejected_since = self.memory.unknown_since = None
        if self.memory.silent_since is None:
            self.memory.silent_since = now
        lasted = now - self.memory.silent_since
        patience = math.inf if self._rules.max_outage is None else self._rules.max_outage
        left = patience - lasted
        if left <= 0:
            return Step(error=self._lost_contact(error, lasted))
        how_long = "until it answers again" if patience == math.inf else f"for up to {duration(patience)}"
        lines = self._in_trouble(f"{error} The execution goes on, as far as is known. Looking on {how_long}.")
        asked_for = min(error.retry_after or 0.0, _LONGEST_RETRY_AFTER)
        return self._look_again(lines, at_least=asked_for, at_most=left)

    def _look_again(
        self,
        lines: list[Line],
        *,
        within: float = math.inf,
        at_least: float = 0.0,
        at_most: float = math.inf,
        renew_token: bool = False,
    ) -> Step:
        left = self._rules.deadline - self._clock()
        if left <= 0:
            return Step(tuple(lines), error=self._waited_too_long())
        chance = self._random()
        # Looking again before the time that the service named would only be turned away again.
        spread = max(min(self._spread_interval(chance), within), at_least * (1 + _JITTER * chance))
        return Step(tuple(lines), look_again_in=min(spread, at_most, left), renew_token=renew_token)

    def _interval(self) -> float:
        if self._rules.poll_interval is not None:
            return self._rules.poll_interval
        began = min(self._rules.kicked_off_at or math.inf, self.memory.started_at)
        return min(max((self._clock() - began) * _SHARE_OF_AGE, SHORTEST_INTERVAL), LONGEST_INTERVAL)

    def _spread_interval(self, chance: float) -> float:
        """Keep watches that happen to look in one instant from doing so for ever."""
        interval = self._interval()
        if self._rules.poll_interval is None:
            # What was promised is the longest, and the shortest is short enough.
            return interval - 2 * _JITTER * chance * (interval - SHORTEST_INTERVAL)
        return interval * (1 - _JITTER + 2 * _JITTER * chance)

    def _recovered(self) -> list[Line]:
        memory = self.memory
        memory.silent_since = memory.rejected_since = memory.unknown_since = None
        if not memory.trouble:
            return []
        memory.trouble = ""
        return [self._line("the service answers again")]

    def _in_trouble(self, text: str) -> list[Line]:
        """Say a trouble when it is new, and again from time to time while it lasts."""
        now = self._clock()
        if text == self.memory.trouble and now - self.memory.said_at < _REMINDER:
            return []
        self.memory.trouble, self.memory.said_at = text, now
        return [Line(logging.WARNING, f"Execution {self.kickoff_id}: {text}")]

    def _warn_of_strange_word(self, running: Running) -> list[Line]:
        if running.is_known:
            return []
        word, known = one_line(running.word, _WORD), self.memory.strange_words
        if word in known or len(known) >= _MOST_STRANGE_WORDS:
            return []
        known.append(word)
        text = f"the service says {word!r}, which is not a known state. It is taken for still going."
        return [Line(logging.WARNING, f"Execution {self.kickoff_id}: {text}")]

    def _report_progress(self, progress: str) -> list[Line]:
        now = self._clock()
        if progress != self.memory.progress:
            self.memory.progress, self.memory.progress_since, self.memory.said_at = progress, now, now
            return [self._line(progress)]
        if now - self.memory.said_at >= _REMINDER:
            self.memory.said_at = now
            return [self._line(f"{progress}, for {duration(now - self.memory.progress_since)}")]
        return []

    def _line(self, text: str) -> Line:
        return Line(logging.INFO, f"Execution {self.kickoff_id}: {text}")

    def _waited_too_long(self) -> WaitedTooLong:
        waited = self._clock() - self.memory.started_at
        last = self.memory.progress or "nothing yet"
        trouble = f" The last looks failed: {self.memory.trouble}" if self.memory.trouble else ""
        return WaitedTooLong(
            f"Execution {self.kickoff_id} was still going when the time to wait was over, after "
            f"{duration(waited)} of watching. Last seen: {last}.{trouble} It cannot be cancelled: it goes on and "
            "is paid for. Wait for it with its kickoff id and more time; do not kick off again.",
            kickoff_id=self.kickoff_id,
            waited=waited,
            last_seen=self.memory.progress,
        )

    def _broken(self, error: CallError) -> WatchBroken:
        return WatchBroken(
            f"Execution {self.kickoff_id} can no longer be watched. {error} The execution may go on and is paid "
            "for. Mend this, and wait for it again with its kickoff id; do not kick off again.",
            kickoff_id=self.kickoff_id,
            cause=error,
        )

    def _lost_contact(self, error: TransientError, lasted: float) -> LostContact:
        last = self.memory.progress or "nothing"
        return LostContact(
            f"There was no usable answer about execution {self.kickoff_id} for {duration(lasted)}. {error} Last "
            f"seen before: {last}. The execution may go on and is paid for. Wait for it with its kickoff id when "
            "the service is back; do not kick off again.",
            kickoff_id=self.kickoff_id,
            lasted=lasted,
            cause=error,
        )


def is_time(value: Any) -> TypeGuard[float]:
    """Whether a value, perhaps from another process, is a number of seconds that can be reckoned with."""
    return isinstance(value, int | float) and abs(value) <= _LAST_TIME


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def describe_progress(running: Running) -> str:
    """Say how far an execution is: ``task 2 of 3, writing_task``."""
    said = [running.current_task] if running.current_task else []
    if running.progress and running.progress.total_tasks:
        total = running.progress.total_tasks
        said.insert(0, f"task {min(running.progress.completed_tasks + 1, total)} of {total}")
    return one_line(", ".join(said) or running.word.lower(), _PROGRESS)


def duration(seconds: float) -> str:
    """Say a time as people do: ``4m 10s``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {left}s" if minutes else f"{left}s"


def _ended_well(execution: Completed) -> str:
    took = f" after {duration(execution.execution_time)}" if execution.execution_time is not None else ""
    return f"completed{took}"


def _execution_failed(execution: Failed) -> ExecutionFailed:
    took = f" after {duration(execution.execution_time)}" if execution.execution_time is not None else ""
    return ExecutionFailed(
        f"Execution {execution.kickoff_id} failed{took}. The crew says: "
        f"{one_line(execution.error, _SHOWN_ERROR).rstrip('. ')}. It has ended and will not go on; only a new "
        "kickoff runs the crew again.",
        kickoff_id=execution.kickoff_id,
        error=execution.error[:_KEPT_ERROR],
        execution_time=execution.execution_time,
    )
