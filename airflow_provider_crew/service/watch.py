"""
What each poll of an execution means, and when to poll again.

Whoever waits (hook, operator, sensor, trigger) feeds in what a poll brought and does what the step says, so all
of them decide alike and in the same words. No I/O happens here; the clock and the random source are passed in.
Times are wall-clock, because a deadline has to survive the restart of the process that watches.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from airflow_provider_crew.service.errors import (
    CallError,
    ExecutionNotFound,
    NotAllowed,
    NotAuthenticated,
    TransientError,
)
from airflow_provider_crew.service.limits import (
    LONGEST_INTERVAL,
    NOT_FOUND_GRACE,
    SHORTEST_INTERVAL,
    TOKEN_PATIENCE,
)
from airflow_provider_crew.service.models import Completed, Failed, Paused, Running
from airflow_provider_crew.service.text import one_line
from airflow_provider_crew.service.watch_state import Line, Polls, Step, WatchMemory, WatchRules
from airflow_provider_crew.service.watch_words import (
    PAUSED,
    UNKNOWN_MAY_MEAN,
    describe_progress,
    duration,
    ended_well,
    execution_failed,
    execution_unknown,
    lost_contact,
    unknown_elsewhere,
    waited_too_long,
    watch_broken,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_JITTER = 0.1
_LONGEST_SPREAD = 15.0
_SHARE_OF_AGE = 0.05
_LONGEST_RETRY_AFTER = 300.0
_REMINDER = 300.0
# People take their time, and nothing else ends such a wait.
_WHILE_PEOPLE_DECIDE = 60.0
_WORD = 100
_MOST_STRANGE_WORDS = 10


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
        self.polls = Polls()
        self.is_in_doubt = False
        """Whether the execution may not exist, or is not known yet: only polling again soon can tell."""
        self._rules = rules
        self._clock = clock
        self._random = random

    def spread(self) -> Step:
        """
        Put off the first poll, so that many watches that begin in one instant do not poll in one instant.

        Not for long: after a restart of the triggerer nobody may have polled for a while.
        """
        left = max(self._rules.deadline - self._clock(), 0.0)
        return Step(poll_again_in=min(self._random() * min(self._interval(), _LONGEST_SPREAD), left))

    def saw(self, execution: Running | Paused | Completed | Failed) -> Step:
        """Decide after an answer."""
        self.polls.all += 1
        self.memory.seen, self.is_in_doubt = True, False
        match execution:
            case Completed():
                end = self._line(ended_well(execution))
                return Step((*self._recovered(), end), completed=execution.including(self.memory.tasks))
            case Failed():
                return Step(tuple(self._recovered()), error=execution_failed(execution))
            case Paused():
                return self._paused(execution)
        self._keep_last_task(execution)
        lines = self._recovered()
        lines += self._warn_of_strange_word(execution)
        lines += self._report_progress(describe_progress(execution))
        return self._poll_again(lines)

    def failed(self, error: CallError) -> Step:
        """Decide after a poll that brought no answer."""
        self.polls.all += 1
        self.polls.failed += 1
        now = self._clock()
        match error:
            case NotAuthenticated() | NotAllowed():
                return self._rejected(error, now)
            case ExecutionNotFound():
                return self._unknown(error, now)
            case TransientError():
                return self._silence(error, now)
        return Step(error=watch_broken(self.kickoff_id, error))

    def token_renewed(self) -> None:
        """Take note that the connection held another token when it was read anew."""
        self.memory.rejected_since = None

    def _paused(self, execution: Paused) -> Step:
        memory = self.memory
        self._keep_last_task(execution)
        memory.silent_since = memory.rejected_since = memory.unknown_since = None
        if not memory.paused:
            self.polls.paused += 1
        memory.paused = True
        return self._poll_again(self._in_trouble(PAUSED), at_least=_WHILE_PEOPLE_DECIDE)

    def _keep_last_task(self, execution: Running | Paused) -> None:
        if execution.last_task and execution.last_task not in self.memory.tasks:
            self.memory.tasks.append(execution.last_task)

    def _unknown(self, error: ExecutionNotFound, now: float) -> Step:
        """Unknown is not gone: a crew that waits for a person reads like this, for as long as it waits."""
        rules, memory = self._rules, self.memory
        if rules.address and error.address and rules.address != error.address:
            return Step(error=unknown_elsewhere(self.kickoff_id, rules.address, error.address))
        since = rules.kicked_off_at
        is_young = since is not None and now - since < NOT_FOUND_GRACE
        if not (rules.exists or rules.human_input or memory.seen):
            self.is_in_doubt = True
            return self._poll_again([], within=NOT_FOUND_GRACE / 6) if is_young else Step(error=error)
        if memory.unknown_since is None:
            memory.unknown_since = now
        memory.silent_since = memory.rejected_since = None
        lasted = now - memory.unknown_since
        patience = math.inf if rules.human_input or rules.max_outage is None else rules.max_outage
        if is_young and not memory.seen:  # not known yet, which is no outage
            return self._poll_again([], within=NOT_FOUND_GRACE / 6)
        if lasted >= patience:
            return Step(error=execution_unknown(self.kickoff_id, memory, lasted))
        how_long = "until the time to wait is over" if patience == math.inf else f"for up to {duration(patience)}"
        told = f"the service does not know it. {UNKNOWN_MAY_MEAN} The wait goes on {how_long}."
        lines = self._in_trouble(told)
        if lasted < NOT_FOUND_GRACE:
            return self._poll_again(lines, within=NOT_FOUND_GRACE / 6, at_most=patience - lasted)
        return self._poll_again(lines, at_least=_WHILE_PEOPLE_DECIDE, at_most=patience - lasted)

    def _rejected(self, error: CallError, now: float) -> Step:
        if self.memory.rejected_since is None:
            self.memory.rejected_since = now
        left = self.memory.rejected_since + TOKEN_PATIENCE - now
        if left <= 0:
            return Step(error=watch_broken(self.kickoff_id, error))
        lines = self._in_trouble(
            f"{error} The execution goes on. The connection is read anew before the next poll, in case the token "
            f"was rotated; giving up after {duration(TOKEN_PATIENCE)}."
        )
        return self._poll_again(lines, at_most=left, renew_token=True)

    def _silence(self, error: TransientError, now: float) -> Step:
        self.memory.rejected_since = None
        if self.memory.silent_since is None:
            self.memory.silent_since = now
        lasted = now - self.memory.silent_since
        patience = math.inf if self._rules.max_outage is None else self._rules.max_outage
        left = patience - lasted
        if left <= 0:
            return Step(error=lost_contact(self.kickoff_id, self.memory, error, lasted))
        how_long = "until it answers again" if patience == math.inf else f"for up to {duration(patience)}"
        lines = self._in_trouble(f"{error} The execution goes on, as far as is known. Looking on {how_long}.")
        asked_for = min(error.retry_after or 0.0, _LONGEST_RETRY_AFTER)
        return self._poll_again(lines, at_least=asked_for, at_most=left)

    def _poll_again(
        self,
        lines: list[Line],
        *,
        within: float = math.inf,
        at_least: float = 0.0,
        at_most: float = math.inf,
        renew_token: bool = False,
    ) -> Step:
        left = self._rules.deadline - self._clock()
        if left <= 0 and self.memory.unknown_since is not None:
            lasted = self._clock() - self.memory.unknown_since
            return Step(tuple(lines), error=execution_unknown(self.kickoff_id, self.memory, lasted))
        if left <= 0:
            return Step(tuple(lines), error=waited_too_long(self.kickoff_id, self.memory, self._clock()))
        chance = self._random()
        # Looking again before the time that the service named would only be turned away again.
        spread = max(min(self._spread_interval(chance), within), at_least * (1 + _JITTER * chance))
        return Step(tuple(lines), poll_again_in=min(spread, at_most, left), renew_token=renew_token)

    def _interval(self) -> float:
        if self._rules.poll_interval is not None:
            return self._rules.poll_interval
        began = min(self._rules.kicked_off_at or math.inf, self.memory.started_at)
        return min(max((self._clock() - began) * _SHARE_OF_AGE, SHORTEST_INTERVAL), LONGEST_INTERVAL)

    def _spread_interval(self, chance: float) -> float:
        """Keep watches that happen to poll in one instant from doing so for ever."""
        interval = self._interval()
        if self._rules.poll_interval is None:
            # What was promised is the longest, and the shortest is short enough.
            return interval - 2 * _JITTER * chance * (interval - SHORTEST_INTERVAL)
        return interval * (1 - _JITTER + 2 * _JITTER * chance)

    def _recovered(self) -> list[Line]:
        memory = self.memory
        # How long that has lasted is not handed over; what was said of it is.
        was_unknown = memory.unknown_since is not None or UNKNOWN_MAY_MEAN in memory.trouble
        memory.paused = False
        memory.silent_since = memory.rejected_since = memory.unknown_since = None
        if not memory.trouble:
            return []
        was_paused, memory.trouble = memory.trouble == PAUSED, ""
        if was_paused:
            return [self._line("the crew goes on")]
        return [self._line("the service knows it again" if was_unknown else "the service answers again")]

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
