"""
Every way a call or an execution can end badly.

An error carries facts and renders once: the event, what it costs, and the next step. Facts are keyword arguments
with defaults, which keeps every error picklable.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self, dataclass_transform

_GATEWAY_WITHOUT_CREW = frozenset({502, 503, 504})


class Cost(StrEnum):
    """What is known to be billed."""

    NONE = "none"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"

    @property
    def sentence(self) -> str:
        """Return it as a reader sees it."""
        return _SENTENCES[self]


_SENTENCES = {
    Cost.NONE: "none; nothing was started.",
    Cost.RUNNING: "billed; the execution is running, or waits for human input.",
    Cost.ENDED: "billed; the execution has ended.",
    Cost.UNKNOWN: "unknown; an execution may have started.",
}


@dataclass_transform(eq_default=False, kw_only_default=True)
@dataclass(eq=False, repr=False)
class CrewError(Exception):
    """
    Anything that goes wrong between this package and a crew.

    :param message: What happened, in sentences that name their subject.
    :param cost: What is known to be billed.
    :param next_step: What the reader can do now.
    :param kickoff_id: The execution, if there is one.
    :param error: The crew's own reason. By default the message.
    """

    message: InitVar[str]
    cost: Cost = field(default=Cost.UNKNOWN, kw_only=True)
    next_step: str = field(default="", kw_only=True)
    kickoff_id: str = field(default="", kw_only=True)
    error: str = field(default="", kw_only=True)

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    def __post_init__(self, message: str) -> None:
        """Let the message stand in for a reason."""
        self.error = self.error or message

    @property
    def event(self) -> str:
        """What happened."""
        return str(self.args[0])

    def replace(self, event: str | None = None, **changes: Any) -> Self:
        """Return the same error with other facts."""
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        return type(self)(event or str(self.args[0]), **facts | changes)

    def as_dict(self) -> dict[str, str]:
        """Return what the Crew tab shows."""
        return {
            "error": type(self).__name__,
            "event": self.event,
            "cost": self.cost.value,
            "next_step": self.next_step,
        }

    def __str__(self) -> str:
        """Return the event, the cost and the next step, a line each."""
        lines = [self.event, f"Cost: {self.cost.sentence}"]
        return "\n".join([*lines, f"Next: {self.next_step}"] if self.next_step else lines)


class InvalidSettings(CrewError):
    """The address, the token or another setting is unusable."""

    cost: Cost = Cost.NONE
    conn_id: str = ""

    @property
    def event(self) -> str:
        """What is wrong, with the connection that the settings come from."""
        fault = str(self.args[0])
        return f"Connection {self.conn_id!r} is unusable. {fault}" if self.conn_id else fault


class InvalidKickoffId(CrewError):
    """A kickoff ID that no service can have issued."""

    cost: Cost = Cost.NONE


class InvalidInputs(CrewError):
    """Inputs or options that cannot be sent, or that are missing."""

    cost: Cost = Cost.NONE


class BudgetSpent(CrewError):
    """The connection's daily limit of kickoffs is reached. Nothing was sent."""

    cost: Cost = Cost.NONE


class InvalidOutputType(CrewError):
    """An output_type that pydantic cannot check by. Nothing was sent."""


class CallError(CrewError):
    """A call did not get the answer it asked for."""

    http_status: int | None = None


class NotAuthenticated(CallError):
    """401: the bearer token is missing, wrong or no longer valid."""

    cost: Cost = Cost.NONE


class NotAllowed(CallError):
    """403: the token is valid, but not allowed to do this."""

    cost: Cost = Cost.NONE


class ExecutionNotFound(CallError):
    """The execution is unknown to the service: not yet, no longer, or while it waits for human input."""

    address: str = ""


class Refused(CallError):
    """Another 3xx or 4xx: the service declined, so nothing was started."""

    cost: Cost = Cost.NONE
    missing_inputs: tuple[str, ...] = ()


class TransientError(CallError):
    """The same call may succeed later. ``timed_out``: there was no answer in time."""

    retry_after: float | None = None
    timed_out: bool = False

    @property
    def may_be_waking_up(self) -> bool:
        """Whether a crew that is starting up after a quiet period answers like this."""
        return self.timed_out or self.http_status in _GATEWAY_WITHOUT_CREW


class RateLimited(TransientError):
    """429: too many requests. Nothing was started."""

    cost: Cost = Cost.NONE


class ServiceError(TransientError):
    """5xx: the service or a gateway failed. The work may have begun."""


class Unreachable(TransientError):
    """
    There was no answer. ``sent`` is False only if it is certain that the request did not leave.

    ``trusted`` is False if a certificate was rejected. ``lacks_connection``: Airflow's connection is unreadable.
    """

    sent: bool = True
    trusted: bool = True
    lacks_connection: bool = False


class UnreadableAnswer(TransientError):
    """There was an answer, and it is unreadable."""


class AnswerTooLarge(CallError):
    """The answer exceeds the limit, and will do so the next time."""


class UncertainKickoff(CrewError):
    """The kickoff was sent, and it is unknown whether it started an execution."""


class WatchError(CrewError):
    """A wait ended without the result of its execution."""

    cost: Cost = Cost.RUNNING


class ExecutionFailed(WatchError):
    """The crew failed. The execution has ended."""

    cost: Cost = Cost.ENDED
    execution_time: float | None = None
    usage: Mapping[str, float] | None = None


class InvalidOutput(WatchError):
    """
    The execution has completed, and its output does not match ``output_type``.

    ``misfits`` name the fields that do not match. There are none if the output could not be checked.
    """

    cost: Cost = Cost.ENDED
    misfits: tuple[str, ...] = ()


class WaitedTooLong(WatchError):
    """The timeout passed while the execution was running."""


class WatchBroken(WatchError):
    """The execution can no longer be polled, and waiting does not help. ``cause`` says why."""

    cause: CallError | None = None


class ExecutionUnknown(WatchError):
    """
    An execution that exists is unknown to the service, as it is while a crew waits for human input.

    ``elsewhere`` is the address of the kickoff, if another one was polled. ``has_completed``: the execution was
    seen to have completed, and its result is unreadable.
    """

    lasted: float = 0.0
    elsewhere: str = ""
    has_completed: bool = False


class LostContact(WatchError):
    """
    There was no usable answer for longer than ``max_outage``.

    ``lacks_connection``: Airflow's connection was unreadable.
    """

    lacks_connection: bool = False
