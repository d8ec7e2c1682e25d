"""
Every way a call or an execution can end badly.

One class per outcome, with the facts as attributes, so that a caller decides by class and a person reads
the message. Facts are keyword arguments with defaults, which keeps every error picklable.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, fields
from typing import Self, dataclass_transform

_GATEWAY_WITHOUT_CREW = frozenset({502, 503, 504})


@dataclass_transform(eq_default=False, kw_only_default=True)
@dataclass(eq=False, repr=False)
class CrewError(Exception):
    """Anything that goes wrong between this package and a crew."""

    message: InitVar[str]

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    def advising(self, advice: str) -> Self:
        """Return the same error with something more to say."""
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        return type(self)(f"{self.args[0]}{advice}", **facts)


class InvalidSettings(CrewError):
    """The address, the token or another setting cannot be used. Nothing was sent."""

    conn_id: str = ""

    @property
    def fault(self) -> str:
        """What is wrong and how to mend it, for where the connection need not be named."""
        return str(self.args[0])

    def __str__(self) -> str:
        """Name the connection first, when the settings come from one."""
        return f"The connection {self.conn_id!r} cannot be used. {self.fault}" if self.conn_id else self.fault


class InvalidKickoffId(CrewError):
    """A kickoff id that no service can have given out. Nothing was sent."""


class InvalidInputs(CrewError):
    """Inputs or meta that cannot be sent, or that are not all the crew needs. Nothing was sent."""


class InvalidOutputType(CrewError):
    """An output_type by which nothing can be checked. Nothing was sent."""


class CallError(CrewError):
    """A call did not get the answer it asked for."""

    http_status: int | None = None


class NotAuthenticated(CallError):
    """401: the bearer token is missing, wrong or no longer valid."""


class NotAllowed(CallError):
    """403: the token is known, but not allowed to do this."""


class ExecutionNotFound(CallError):
    """The service does not know the execution: not yet, not any more, or while it waits for a person."""

    kickoff_id: str = ""
    address: str = ""


class Refused(CallError):
    """Another 3xx or 4xx: the service understood and declined, so nothing was started."""

    missing_inputs: tuple[str, ...] = ()


class TransientError(CallError):
    """The same call may well succeed a little later. ``timed_out``: time was over, and nobody said no."""

    retry_after: float | None = None
    timed_out: bool = False

    @property
    def may_be_waking_up(self) -> bool:
        """Whether a crew answers like this for a while after a quiet period."""
        return self.timed_out or self.http_status in _GATEWAY_WITHOUT_CREW


class RateLimited(TransientError):
    """429: too many requests; nothing was started."""


class ServiceError(TransientError):
    """5xx: the service or a gateway in front of it failed; the work may have begun all the same."""


class Unreachable(TransientError):
    """
    No answer came. ``sent`` is False only when it is certain that no request reached the service.

    ``trusted`` is False when whoever was there could not prove to be the service.
    """

    sent: bool = True
    trusted: bool = True


class UnreadableAnswer(TransientError):
    """An answer came and cannot be understood."""


class AnswerTooLarge(CallError):
    """An answer over the limit. It will be as large the next time."""


class UncertainKickoff(CrewError):
    """The kickoff was sent, and whether an execution started cannot be known from here."""


class WatchError(CrewError):
    """Watching an execution ended without its result."""

    kickoff_id: str = ""


class ExecutionFailed(WatchError):
    """The crew ran and failed. The execution is over."""

    error: str = ""
    execution_time: float | None = None
    usage: Mapping[str, float] | None = None


class InvalidOutput(WatchError):
    """
    The crew has completed, and its output is not of the type that was asked for.

    ``misfits`` name what does not fit; there are none where the output could not be checked at all.
    """

    misfits: tuple[str, ...] = ()


class WaitedTooLong(WatchError):
    """The deadline passed while the execution was still going."""


class WatchBroken(WatchError):
    """The execution can no longer be read, and waiting would not mend it: the ``cause`` is no passing one."""

    cause: CallError | None = None


class ExecutionUnknown(WatchError):
    """
    The service does not know an execution that certainly exists.

    A crew that waits for a person's answer reads like this, so it may be alive, and paid for. ``elsewhere`` is the
    address at which it was kicked off, when another one was asked. ``has_completed``: it was seen to have
    completed, and only its result is out of reach.
    """

    lasted: float = 0.0
    elsewhere: str = ""
    has_completed: bool = False


class LostContact(WatchError):
    """The service gave no usable answer for longer than an outage may last."""
