"""
Decide after each poll of an execution: continue, finish or fail, and when to poll again.

The hook, operator, sensor and trigger all pass the outcome of a poll and follow the returned step, so they behave
alike. There is no I/O here; the clock and the random source are passed in. Times are wall-clock times, because a
deadline must survive a restart of the polling process.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, StrictBool, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client import options as limits
from airflow_provider_crew.client.models import (
    LAST_TIME,
    WHEN_USED,
    Completed,
    Execution,
    Failed,
    History,
    Paused,
    Running,
    Time,
)
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.client.wording import SHOWN_TEXT, after, duration, execution_failed, unknown_elsewhere

_JITTER = 0.1
_LONGEST_SPREAD = 15.0
_SHARE_OF_AGE = 0.05
_LONGEST_RETRY_AFTER_IN_WATCH = 300.0
_REMINDER = 300.0
# A person may take days, and such a wait needs no attention.
_REMINDER_WHILE_PEOPLE_DECIDE = 3600.0

Interval = Annotated[float, Field(strict=True, gt=0, le=LAST_TIME)]
Pause = Annotated[float, Field(strict=True, ge=0, le=LAST_TIME)]
Limit = Annotated[float, Field(strict=True, ge=0)]
_adapter_of: Any = cache(TypeAdapter)  # building one takes 6 ms, and a process that begins a watch needs none
# Outcomes of a poll.
PollError = errors.CallError | errors.InvalidSettings
Outcome = Execution | PollError
# Progress of an execution that no poll has found at work.
_NOT_BEGUN = frozenset({"", "queued", "pending"})
# Ordered by how much each one reveals about the execution, least first.
Trouble = Literal["rejected", "silent", "unknown", "paused"]
_TROUBLES: tuple[Trouble, ...] = get_args(Trouble)


class Step(NamedTuple):
    """Action after a poll: end with a result or an error, or poll again later."""

    completed: Completed | None = None
    error: errors.CrewError | None = None
    poll_again_in: float = 0.0
    renew_token: bool = False


@validated(frozen=True, slots=True, kw_only=True, config=WHEN_USED)
class WatchRules:
    """
    Rules for watching one execution. Values that would poll without a pause or endlessly are rejected.

    ``deadline`` and ``kicked_off_at`` are wall-clock times. ``poll_interval`` is the time between two polls.
    ``None`` adapts it to the age of the execution. ``max_outage`` limits the time without a usable response.
    ``None`` disables the limit. ``kicked_off_at`` allows for a crew that needs a moment until it knows the
    execution.

    ``exists``: the crew issued the kickoff ID, so the execution exists even while it is unknown. ``address``:
    the address of the kickoff, if it is known. ``human_input``: the crew may wait for human input until the
    deadline. ``stops_for_input``: the watch ends as soon as the crew waits for human input. ``stops_after``:
    seconds of such a wait before that. ``answered_at``: the time at which a user has answered the crew, so it
    should continue soon. ``first_poll_at``: the time before which not to poll, because another process has just
    done so. ``continued_as``: another ID of the execution, from the crew's response to an answer. ``limit``: the
    limit that ends the wait at the deadline.
    """

    deadline: Time
    poll_interval: Interval | None = None
    max_outage: Limit | None = limits.MAX_OUTAGE
    kicked_off_at: Time | None = None
    exists: StrictBool = False
    address: str = ""
    human_input: StrictBool = False
    stops_for_input: StrictBool = False
    stops_after: Pause = 0.0
    answered_at: Time | None = None
    first_poll_at: Time | None = None
    continued_as: str = ""
    limit: str = "timeout"


@dataclass(slots=True)
class WatchState:
    """State of a watch as plain data, so that the next process can continue from it."""

    started_at: Time
    seen: StrictBool = False
    """Whether any poll has found the execution."""
    works: StrictBool = False
    """Whether a poll has found it at work since the task has asked a user."""
    progress: str = ""
    """Description of the last known progress. Empty before the first successful poll."""
    place: str = ""
    """Last known task or step."""
    progress_since: Time = 0.0
    said_at: Time = 0.0
    troubles: dict[Trouble, Time | None] = field(default_factory=dict)
    """Start time of each current trouble. ``None`` restarts the count in the next process."""
    said_trouble: str = ""
    """Text of the trouble that was logged last."""
    said_about: str = ""
    """Kind of that trouble. Its text may hold a request ID, which differs at every poll."""
    polled_at: Time = 0.0
    """Time of the last poll's response."""
    pause: Pause = 0.0
    """Seconds between that response and the next poll."""
    history: History = field(default_factory=History)

    @property
    def has_begun(self) -> bool:
        """Whether any poll has found the execution at work. Before that, it was queued."""
        return self.history.began_at is not None or self.progress not in _NOT_BEGUN

    @classmethod
    def recalled(cls, stored: Any) -> "WatchState | None":
        """Restore the state of another process, perhaps of another version. Return None if it is invalid."""
        try:
            return _adapter_of(cls).validate_python(stored) if stored else None
        except ValidationError:
            return None

    def carried(self) -> dict[str, Any]:
        """Return the state as plain data, limited to the newest tasks."""
        # A clock change can stretch only these troubles. Without them, a poll that brings no news stores nothing.
        needless = set() if self.troubles.keys() - {"paused"} else {"polled_at", "pause"}
        stored = {name: value for name, value in asdict(self).items() if name not in needless}
        return stored | {"history": self.history.carried()}

    def handed_over(self) -> dict[str, Any]:
        """
        Return the state for a process that may start, or restart, much later.

        That process counts the duration of each trouble from its own start.
        """
        return self.carried() | {"troubles": dict.fromkeys(self.troubles)}


class Watch:
    """Watch of one execution. Records the outcome of each poll and decides the next step."""

    def __init__(
        self,
        kickoff_id: str,
        rules: WatchRules,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        memory: WatchState | None = None,
    ) -> None:
        self.kickoff_id = kickoff_id
        self._clock = clock
        self._random = random
        self.rules = rules
        self._max_outage = math.inf if rules.max_outage is None else rules.max_outage
        self.has_response = False
        """Whether a poll of this process returned a status."""
        self.polled_at = clock()
        """Time of the current poll's response."""
        self.memory = memory or WatchState(started_at=self.polled_at)
        self.lines: list[tuple[int, str]] = []
        """Level and text of each log line about the current poll."""
        self.is_in_doubt = False
        """Whether the execution may not exist, or is not known yet. Only another poll, soon, can tell."""
        self.request_timeout = limits.REQUEST_TIMEOUT
        """Maximum duration of one poll in seconds."""

    @property
    def ids(self) -> list[str]:
        """IDs of the execution, each of which is polled."""
        return list(filter(None, (self.kickoff_id, self.rules.continued_as)))

    @property
    def started_at(self) -> float:
        """Start time of the execution, if known and earlier than the watch, or else of the watch."""
        return min(self.rules.kicked_off_at or math.inf, self.memory.started_at)

    def spread(self) -> Step:
        """
        Delay the first poll at random, so that watches that start together do not poll together.

        The delay is short, because the execution may not have been polled for a while after a triggerer restart.
        """
        left = max(self.rules.deadline - self.polled_at, 0.0)
        if self.rules.first_poll_at is not None:
            return Step(poll_again_in=min(max(self.rules.first_poll_at - self.polled_at, 0.0), left))
        return Step(poll_again_in=min(self._random() * min(self._interval(), _LONGEST_SPREAD), left))

    def whichever(self, found: list[Outcome]) -> Execution:
        """
        Return the status of an execution that may have two IDs, from the outcome of a poll of each.

        It is unproven which of them completes. If the second failed and the first is unknown, that one may still
        wait, so nothing may replace it.
        """
        first, last = found[0], found[-1]
        is_unknown = isinstance(first, errors.ExecutionNotFound)
        if is_unknown and isinstance(last, Failed):
            event = "The execution is unknown to the crew after an answer. It may still wait, but"
            why = f"its continuation {last.kickoff_id} has failed: {one_line(last.error, SHOWN_TEXT)}"
            raise errors.ExecutionUnknown(f"{event} {why}", kickoff_id=self.kickoff_id)
        counts = Completed | Running | Paused if is_unknown else Completed
        if first is not last and isinstance(last, counts):
            return last.model_copy(update={"kickoff_id": self.kickoff_id})
        if isinstance(first, errors.CrewError):
            raise first
        return first

    def on_status(self, execution: Execution) -> Step:
        """Decide the next step after a response."""
        self._take_time()
        self.memory.seen, self.has_response, self.is_in_doubt = True, True, False
        match execution:
            case Running():
                self.memory.works = True
                self.memory.history.follow(execution, self.polled_at)
                self._recovered()
                self._report_progress(execution)
                return self._poll_again()
            case Paused():
                self.memory.history.follow(execution, self.polled_at)
                self._report_trouble("waiting for answers in its dashboard. Polling continues.", is_expected=True)
                return self._wait_for_input(self._lasted("paused"))
            case Completed():
                self._recovered()
                self.lines.append((logging.INFO, f"completed{after(execution)}"))
                return Step(completed=self.memory.history.added_to(execution))
            case Failed():
                was_at, history = self.memory.place, self.memory.history
                steps, last = history.steps[-1:], execution.last_task
                if was_at and steps and last and last not in history.tasks and last.task_id == steps[0].task_id:
                    was_at = f"after {was_at}"  # the crew lists it as finished
                history.keep(last)
                self._recovered()
                return Step(error=execution_failed(execution, was_at))

    def on_error(self, error: PollError) -> Step:
        """Decide the next step after a poll without a response."""
        self._take_time()
        match error:
            case errors.NotAuthenticated() | errors.NotAllowed() | errors.Rejected() | errors.InvalidSettings():
                return self._rejected(error)
            case errors.ExecutionNotFound():
                return self._unknown(error)
            case errors.TransientError():
                return self._silent(error)
        return self._broken(error)

    def on_deadline(self) -> Step:
        """End the watch because the deadline has passed before there was a place for a poll."""
        self._take_time()
        return self._out_of_time()

    def token_renewed(self) -> None:
        """Record that the connection held a new token when it was read again."""
        self.memory.troubles.pop("rejected", None)

    def _take_time(self) -> None:
        """
        Begin a poll, and read the clock. Count at most one pause and one timeout since the last poll.

        A change of the clock or a suspended machine must not extend the duration of a trouble.
        """
        self.lines = []
        memory, now = self.memory, self._clock()
        if memory.polled_at:
            elapsed = now - memory.polled_at
            jump = elapsed - min(max(elapsed, 0.0), memory.pause + self.request_timeout)
            for trouble, since in memory.troubles.items():
                memory.troubles[trouble] = None if since is None else min(max(since + jump, 0.0), now)
        memory.polled_at = self.polled_at = now

    def _unknown(self, error: errors.ExecutionNotFound) -> Step:
        """Keep waiting while the execution is unknown, because the crew may be waiting for human input."""
        rules, seen = self.rules, self.memory.seen
        if rules.address and error.address and rules.address != error.address:
            return Step(error=unknown_elsewhere(self.kickoff_id, rules.address, error.address))
        since = rules.kicked_off_at
        is_young = since is not None and self.polled_at - since < timing.NOT_FOUND_GRACE
        if not (rules.exists or rules.human_input or seen):
            self.is_in_doubt = True
            return self._poll_again(at_most=timing.UNKNOWN_POLL) if is_young else Step(error=error)
        lasted = self._lasted("unknown")
        if is_young and not seen and lasted < timing.NOT_FOUND_GRACE:  # not known yet, so no outage
            return self._poll_again(at_most=timing.UNKNOWN_POLL)
        max_outage = math.inf if rules.human_input else self._max_outage
        if lasted >= max_outage:
            return self._still_unknown(lasted)
        limit = "until the timeout" if max_outage == math.inf else f"for up to {duration(max_outage)}"
        self._report_trouble(
            "the crew reports NOT FOUND, as it does while it waits for human input. The execution may be running "
            f"and billed. Polling continues {limit}.",
            is_expected=rules.human_input,
        )
        if lasted < timing.NOT_FOUND_GRACE:
            return self._poll_again(at_most=min(timing.UNKNOWN_POLL, max_outage - lasted))
        return self._wait_for_input(lasted, at_most=max_outage - lasted)

    def _wait_for_input(self, lasted: float, at_most: float = math.inf) -> Step:
        """Poll less often while a person decides, and often for a while after an answer."""
        rules = self.rules
        if rules.answered_at is not None and self.polled_at - rules.answered_at < timing.PEOPLE_POLL:
            return self._poll_again(at_most=min(timing.UNKNOWN_POLL, at_most))
        may_stop = rules.human_input or "paused" in self.memory.troubles
        if rules.stops_for_input and may_stop and lasted >= rules.stops_after:
            return self._end(errors.HumanInputNeeded, "The crew waits for human input.")
        return self._poll_again(at_least=timing.PEOPLE_POLL, at_most=at_most)

    def _still_unknown(self, lasted: float) -> Step:
        return self._end(
            errors.ExecutionUnknown,
            f"For {duration(lasted)}, the crew has reported NOT FOUND, as it does while it waits for human input.",
            lasted=lasted,
        )

    def _rejected(self, error: PollError) -> Step:
        lasted = self._lasted("rejected")
        limit = timing.LONGEST_REJECTION
        left = limit - lasted
        if left <= 0:
            # A gateway may respond to anything for a while. A token or a connection stays wrong until it is fixed.
            return self._lost(error, lasted) if isinstance(error, errors.Rejected) else self._broken(error)
        self._report_trouble(
            f"{error.event} The connection is read again before each poll, for up to {duration(limit)}.",
            about=error,
        )
        return self._poll_again(at_most=left)._replace(renew_token=isinstance(error, errors.CallError))

    def _silent(self, error: errors.TransientError) -> Step:
        lasted = self._lasted("silent")
        left = self._max_outage - lasted
        if left <= 0:
            return self._lost(error, lasted)
        unlimited = self._max_outage == math.inf
        limit = "until the crew responds" if unlimited else f"for up to {duration(self._max_outage)}"
        self._report_trouble(f"no usable response. {error.event} Polling continues {limit}.", about=error)
        asked_for = min(error.retry_after or 0.0, _LONGEST_RETRY_AFTER_IN_WATCH)
        return self._poll_again(at_least=asked_for, at_most=left)

    def _lost(self, error: errors.CallError, lasted: float) -> Step:
        event = f"The crew returned no usable response for {duration(lasted)}. {error.event}"
        return self._end(errors.LostContact, event, cause=error)

    def _broken(self, error: PollError) -> Step:
        """End a watch that cannot continue until its cause is fixed."""
        event = f"{error.event} The execution can no longer be polled."
        return self._end(errors.WatchBroken, event, cause=error)

    def _out_of_time(self) -> Step:
        memory, self.lines = self.memory, []  # polling does not continue
        if unknown_since := memory.troubles.get("unknown"):
            return self._still_unknown(self.polled_at - unknown_since)
        trouble = f" At the last poll: {said}" if (said := memory.said_trouble.partition(" Polling ")[0]) else ""
        return self._end(
            errors.WaitedTooLong,
            f"The {self.rules.limit} passed after {duration(self.polled_at - memory.started_at)}, while the "
            f"execution was running.{trouble}",
            limit=self.rules.limit,
        )

    def _end(self, kind: type[errors.WatchError], event: str, **facts: Any) -> Step:
        return Step(error=kind(event, kickoff_id=self.kickoff_id, at=self.memory.progress, **facts))

    def _poll_again(self, *, at_least: float = 0.0, at_most: float = math.inf) -> Step:
        left = self.rules.deadline - self.polled_at
        if left <= 0:
            return self._out_of_time()
        chance = self._random()
        # The crew would reject a poll before the time that it requested.
        pause = max(self._interval(chance), at_least * (1 + _JITTER * chance))
        self.memory.pause = min(pause, at_most, left)
        return Step(poll_again_in=self.memory.pause)

    def _interval(self, chance: float = 0.5) -> float:
        """Return the time between two polls, with jitter, so that watches do not stay synchronized."""
        spread = 2 * _JITTER * chance
        if self.rules.poll_interval is not None:
            return self.rules.poll_interval * (1 - _JITTER + spread)
        age = self.polled_at - self.started_at
        interval = min(max(age * _SHARE_OF_AGE, timing.SHORTEST_INTERVAL), timing.LONGEST_INTERVAL)
        # Only shorten the interval: the adaptive value is the documented maximum, and the minimum is short enough.
        return interval - spread * (interval - timing.SHORTEST_INTERVAL)

    def _lasted(self, trouble: Trouble) -> float:
        """Return the duration of a trouble. Clear the troubles that reveal less about the execution."""
        troubles = self.memory.troubles
        for lesser in _TROUBLES[: _TROUBLES.index(trouble)]:
            troubles.pop(lesser, None)
        since = troubles.get(trouble)
        if since is None:
            since = troubles[trouble] = self.polled_at
        return self.polled_at - since

    def _report_trouble(
        self, text: str, *, about: errors.CrewError | None = None, is_expected: bool = False
    ) -> None:
        """
        Log a trouble when it is new, and again at intervals while it lasts.

        ``about`` identifies the kind of trouble, because its text may differ from request to request.
        ``is_expected``: the crew waits for human input, as the author of the DAG has said it may.
        """
        memory, kind = self.memory, text
        if about:
            status = getattr(about, "http_status", None)
            kind = about.event if status is None else f"{type(about).__name__} {status}"
        reminder = _REMINDER_WHILE_PEOPLE_DECIDE if is_expected else _REMINDER
        if kind != memory.said_about or self.polled_at - memory.said_at >= reminder:
            memory.said_trouble, memory.said_about, memory.said_at = text, kind, self.polled_at
            self.lines.append((logging.INFO if is_expected else logging.WARNING, text))

    def _recovered(self) -> None:
        memory, over = self.memory, self.memory.troubles
        if memory.said_trouble:
            again = "the execution is known again" if "unknown" in over else "responds again"
            self.lines.append((logging.INFO, "continues" if "paused" in over else again))
        memory.troubles, memory.said_trouble, memory.said_about = {}, "", ""

    def _report_progress(self, running: Running) -> None:
        memory, now = self.memory, self.polled_at
        progress = running.doing
        if progress == memory.progress:
            if now - memory.said_at >= _REMINDER:
                memory.said_at = now
                self.lines.append((logging.INFO, f"{progress}, for {duration(now - memory.progress_since)}"))
            return
        memory.progress, memory.progress_since, memory.said_at = progress, now, now
        memory.place = running.place
        if not running.is_known:
            unknown_state = f"unknown state {one_line(running.word, 100)!r}, treated as running"
            self.lines.append((logging.WARNING, unknown_state))
        self.lines.append((logging.INFO, progress))
