"""
What each poll of an execution means, and when to poll again.

Whoever waits (hook, operator, sensor, trigger) feeds in what a poll brought and does what the step says, so all
of them decide alike and in the same words. No I/O happens here; the clock and the random source are passed in.
Times are wall-clock, because a deadline has to survive the restart of the process that watches.
"""

import logging
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, get_args

from airflow_provider_crew.service import errors, limits, messages
from airflow_provider_crew.service import watch_words as words
from airflow_provider_crew.service.models import Completed, Execution, Failed, Paused, Running, TaskResult
from airflow_provider_crew.service.text import one_line, wrapped
from airflow_provider_crew.service.watch_state import Line, Polls, Step, Trouble, WatchMemory, WatchRules

_JITTER = 0.1
_LONGEST_SPREAD = 15.0
_SHARE_OF_AGE = 0.05
_LONGEST_RETRY_AFTER = 300.0
_REMINDER = 300.0
# Until the service knows an execution that it has just started, or knows it again.
_SOON = limits.NOT_FOUND_GRACE / 6
# People take their time, and nothing else ends such a wait.
_WHILE_PEOPLE_DECIDE = 60.0
_WORD = 100
_TROUBLES: tuple[Trouble, ...] = get_args(Trouble)
_PAUSED = "the crew is paused: it waits for a person's answer."
_IS_PAID_FOR = "It is paid for. The wait goes on."
_MAY_HAVE_FAILED = " A run that has failed may answer like that for ever: look into the crew's dashboard."
_REJECTED = {
    errors.NotAuthenticated: "the crew does not accept the token",
    errors.NotAllowed: "the token may not do this",
}
_MAY_WAIT = "A crew that waits for a person's answer reads like this: it may be alive, and it is paid for."


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
        self._clock = clock
        self._now = clock()
        self.memory = memory or WatchMemory(started_at=self._now, said_at=self._now)
        self._polls = self._failed = self._paused = 0
        self.is_in_doubt = False
        """Whether the execution may not exist, or is not known yet: only polling again soon can tell."""
        self._rules = rules
        self._patience = math.inf if rules.max_outage is None else rules.max_outage
        self.request_timeout = limits.REQUEST_TIMEOUT
        """For how long one poll may take."""
        self._random = random

    @property
    def polls(self) -> Polls:
        """How often it was fed, and with what."""
        return Polls(self._polls, self._failed, self._paused)

    @property
    def polled_at(self) -> float:
        """When the poll came back that is being judged."""
        return self._now

    @property
    def started_at(self) -> float:
        """When the execution was kicked off, as far as is known, or else when the watch began."""
        return min(self._rules.kicked_off_at or math.inf, self.memory.started_at)

    def spread(self) -> Step:
        """
        Put off the first poll, so that many watches that begin in one instant do not poll in one instant.

        Not for long: after a restart of the triggerer nobody may have polled for a while.
        """
        left = max(self._rules.deadline - self._now, 0.0)
        return Step(poll_again_in=min(self._random() * min(self._interval(), _LONGEST_SPREAD), left))

    def saw(self, execution: Execution) -> Step:
        """Decide after an answer."""
        self._take_time()
        self._polls += 1
        self.memory.seen, self.is_in_doubt = True, False
        match execution:
            case Running():
                self._keep(execution.last_task)
                return self._poll_again((*self._recovered(), *self._report_progress(execution)))
            case Paused():
                self._keep(execution.last_task)
                if "paused" not in self.memory.troubles:
                    self._paused += 1
                self._lasted("paused")
                return self._poll_again(self._in_trouble(_PAUSED, _IS_PAID_FOR), at_least=_WHILE_PEOPLE_DECIDE)
            case Completed():
                passed = words.passed_unseen(execution, self.memory.step)
                told = [self._line(text) for text in (passed, f"completed{words.after(execution)}") if text]
                return Step((*self._recovered(), *told), completed=execution.including(self.memory.tasks))
            case Failed():
                return Step(self._recovered(), error=words.execution_failed(execution, self.memory.place))

    def failed(self, error: errors.CallError) -> Step:
        """Decide after a poll that brought no answer."""
        self._take_time()
        self._polls += 1
        self._failed += 1
        match error:
            case errors.NotAuthenticated() | errors.NotAllowed():
                return self._rejected(error)
            case errors.ExecutionNotFound():
                return self._unknown(error)
            case errors.TransientError():
                return self._silent(error)
        return self._broken(error)

    def token_renewed(self) -> None:
        """Take note that the connection held another token when it was read anew."""
        self.memory.troubles.pop("rejected", None)

    def _take_time(self) -> None:
        """
        Read the clock, and count the time since the poll before as one pause and one timeout at the most.

        Somebody may have set the clock meanwhile, or suspended the machine. Troubles have lasted no longer for it.
        """
        memory, now = self.memory, self._clock()
        if memory.polled_at:
            elapsed = now - memory.polled_at
            jump = elapsed - min(max(elapsed, 0.0), memory.pause + self.request_timeout)
            for trouble, since in memory.troubles.items():
                memory.troubles[trouble] = None if since is None else min(max(since + jump, 0.0), now)
        memory.polled_at = self._now = now

    def _keep(self, task: TaskResult | None) -> None:
        if task:
            self.memory.keep(task)

    def _unknown(self, error: errors.ExecutionNotFound) -> Step:
        """Unknown is not gone: a crew that waits for a person reads like this, for as long as it waits."""
        rules, seen = self._rules, self.memory.seen
        if rules.address and error.address and rules.address != error.address:
            return Step(error=words.unknown_elsewhere(self.kickoff_id, rules.address, error.address))
        since = rules.kicked_off_at
        is_young = since is not None and self._now - since < limits.NOT_FOUND_GRACE
        if not (rules.exists or rules.human_input or seen):
            self.is_in_doubt = True
            return self._poll_again((), at_most=_SOON) if is_young else Step(error=error)
        lasted = self._lasted("unknown")
        if is_young and not seen and lasted < limits.NOT_FOUND_GRACE:  # not known yet, which is no outage
            return self._poll_again((), at_most=_SOON)
        patience = math.inf if rules.human_input else self._patience
        if lasted >= patience:
            return self._still_unknown(lasted)
        how_long = _up_to(patience) or "until the time to wait is over"
        lines = self._in_trouble("the service does not know it.", f"{_MAY_WAIT} The wait goes on {how_long}.")
        if lasted < limits.NOT_FOUND_GRACE:
            return self._poll_again(lines, at_most=min(_SOON, patience - lasted))
        return self._poll_again(lines, at_least=_WHILE_PEOPLE_DECIDE, at_most=patience - lasted)

    def _still_unknown(self, lasted: float) -> Step:
        words_of_it = {"lasted": words.duration(lasted), "progress": self.memory.progress}
        return self._end(errors.ExecutionUnknown, messages.STILL_UNKNOWN, words_of_it, lasted=lasted)

    def _rejected(self, error: errors.CallError) -> Step:
        left = limits.TOKEN_PATIENCE - self._lasted("rejected")
        if left <= 0:
            return self._broken(error)
        lines = self._in_trouble(
            f"{_REJECTED[type(error)]}. It is read anew.",
            f"{error.reason} The execution goes on. The connection is read anew before the next poll, in case the "
            f"token was rotated; giving up after {words.duration(limits.TOKEN_PATIENCE)}.",
            about=_kind_of(error),
        )
        return self._poll_again(lines, at_most=left)._replace(renew_token=True)

    def _silent(self, error: errors.TransientError) -> Step:
        lasted = self._lasted("silent")
        left = self._patience - lasted
        if left <= 0:
            return self._lost(error, lasted)
        how_long = _up_to(self._patience) or "until it answers again"
        lines = self._in_trouble(
            f"no usable answer. The wait goes on {how_long}.",
            f"{error.reason} The execution goes on, as far as is known.",
            about=_kind_of(error),
        )
        asked_for = min(error.retry_after or 0.0, _LONGEST_RETRY_AFTER)
        return self._poll_again(lines, at_least=asked_for, at_most=left)

    def _lost(self, error: errors.TransientError, lasted: float) -> Step:
        hint = _MAY_HAVE_FAILED if error.http_status == HTTPStatus.INTERNAL_SERVER_ERROR else ""
        told = {"lasted": words.duration(lasted), "why": error.reason, "hint": hint}
        told["progress"] = self.memory.progress
        lacks = isinstance(error, errors.Unreachable) and error.lacks_connection
        return self._end(errors.LostContact, messages.LOST_CONTACT, told, lacks_connection=lacks)

    def _broken(self, error: errors.CallError) -> Step:
        """Give up what only a person can mend."""
        of_token = isinstance(error, errors.NotAuthenticated)
        message = messages.TOKEN_REJECTED_MEANWHILE if of_token else messages.NO_LONGER_WATCHED
        return self._end(errors.WatchBroken, message, {"why": error.reason}, cause=error)

    def _out_of_time(self) -> Step:
        memory = self.memory
        if unknown_since := memory.troubles.get("unknown"):
            return self._still_unknown(self._now - unknown_since)
        trouble = f" At the last poll: {memory.said_trouble}" if memory.said_trouble else ""
        watched = words.duration(self._now - memory.started_at)
        told = {"watched": watched, "progress": memory.progress, "trouble": trouble}
        return self._end(errors.WaitedTooLong, messages.WAITED_TOO_LONG, told)

    def _end(
        self, kind: type[errors.WatchError], message: messages.Message, told: dict[str, Any], **facts: Any
    ) -> Step:
        told["execution"] = errors.execution(self.kickoff_id)
        return Step(error=kind.saying(message, told, kickoff_id=self.kickoff_id, **facts))

    def _poll_again(self, lines: tuple[Line, ...], at_least: float = 0.0, at_most: float = math.inf) -> Step:
        left = self._rules.deadline - self._now
        if left <= 0:
            return self._out_of_time()
        chance = self._random()
        # Looking again before the time that the service named would only be turned away again.
        pause = max(self._interval(chance), at_least * (1 + _JITTER * chance))
        self.memory.pause = min(pause, at_most, left)
        return Step(lines, poll_again_in=self.memory.pause)

    def _interval(self, chance: float = 0.5) -> float:
        """Return the time between two polls: spread by chance, or what once coincides would do so for ever."""
        spread = 2 * _JITTER * chance
        if self._rules.poll_interval is not None:
            return self._rules.poll_interval * (1 - _JITTER + spread)
        age = self._now - self.started_at
        interval = min(max(age * _SHARE_OF_AGE, limits.SHORTEST_INTERVAL), limits.LONGEST_INTERVAL)
        # What was promised is the longest, and the shortest is short enough.
        return interval - spread * (interval - limits.SHORTEST_INTERVAL)

    def _lasted(self, trouble: Trouble) -> float:
        """Tell for how long a trouble has lasted. It ends those that tell less of the execution."""
        troubles = self.memory.troubles
        for lesser in _TROUBLES[: _TROUBLES.index(trouble)]:
            troubles.pop(lesser, None)
        since = troubles.get(trouble)
        if since is None:
            since = troubles[trouble] = self._now
        return self._now - since

    def _in_trouble(self, text: str, more: str, *, about: str = "") -> tuple[Line, ...]:
        """
        Say a trouble when it is new, and again from time to time while it lasts: in short, then more of it.

        ``about`` tells one kind from another, if the text itself differs from poll to poll.
        """
        memory, told = self.memory, f"{text} {more}"
        about = about or told
        if about == memory.said_about and self._now - memory.said_at < _REMINDER:
            return ()
        memory.said_trouble, memory.said_about, memory.said_at = told, about, self._now
        return (self._line(text, logging.WARNING), *(Line(logging.WARNING, line) for line in wrapped(more)))

    def _recovered(self) -> tuple[Line, ...]:
        memory = self.memory
        over, memory.troubles = memory.troubles, {}
        said, memory.said_trouble, memory.said_about = memory.said_trouble, "", ""
        if not said:
            return ()
        if "paused" in over:
            return (self._line("the crew goes on"),)
        return (self._line("the service knows it again" if "unknown" in over else "the service answers again"),)

    def _report_progress(self, running: Running) -> tuple[Line, ...]:
        memory, now = self.memory, self._now
        progress = words.describe_progress(running)
        if progress != memory.progress:
            memory.progress, memory.progress_since, memory.said_at = progress, now, now
            memory.step = words.step_of(running)
            memory.place = words.place(running)
            news = self._line(progress)
            if running.is_known:
                return (news,)
            word = one_line(running.word, _WORD)
            strange = self._line(f"its state is {word!r}, which is not known.", logging.WARNING)
            return (strange, Line(logging.WARNING, "It is taken for still going."), news)
        if now - memory.said_at >= _REMINDER:
            memory.said_at = now
            return (self._line(f"{progress}, for {words.duration(now - memory.progress_since)}"),)
        return ()

    def _line(self, text: str, level: int = logging.INFO) -> Line:
        return Line(level, f"Execution {self.kickoff_id}: {text}")


def _kind_of(error: errors.CallError) -> str:
    """Tell one kind of failure from another. Only an answer may hold what differs from request to request."""
    return error.reason if error.http_status is None else f"{type(error).__name__} {error.http_status}"


def _up_to(patience: float) -> str:
    """Say how long a trouble is put up with, where that has an end."""
    return "" if patience == math.inf else f"for up to {words.duration(patience)}"
