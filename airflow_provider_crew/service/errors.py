"""
Every way a call or an execution can end badly.

One class per outcome, with the facts as attributes, so that a caller decides by class and a person reads
the message. Facts are keyword arguments with defaults, which keeps every error picklable.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, Self, dataclass_transform

from airflow_provider_crew.service.messages import Message, Money
from airflow_provider_crew.service.text import LINE, cut, wrapped

_GATEWAY_WITHOUT_CREW = frozenset({502, 503, 504})
# An exception's first line, so that it fits behind the exception's name, too.
_WHAT = 99
NEXT = LINE - len("Next: ")
# A longer id than a UUID has a line of its own.
_SHOWN_ID = 36


@dataclass_transform(eq_default=False, kw_only_default=True)
@dataclass(eq=False, repr=False)
class CrewError(Exception):
    """
    Anything that goes wrong between this package and a crew.

    ``money``: what is known of an execution that is paid for. ``next``: what to do. ``details``: what else there
    is to say. ``kickoff_id``: the execution that it is about, if there is one. ``error``: what went wrong, in the
    crew's own words where it has said so.
    """

    message: InitVar[str]
    money: Money = field(default=Money.UNKNOWN, kw_only=True)
    next: str = field(default="", kw_only=True)
    details: str = field(default="", kw_only=True)
    kickoff_id: str = field(default="", kw_only=True)
    error: str = field(default="", kw_only=True)

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    def __post_init__(self, message: str) -> None:
        """Say in any case what went wrong."""
        self.error = self.error or message

    @classmethod
    def saying(cls, message: Message, words: Mapping[str, Any] | None = None, **facts: Any) -> Self:
        """Return an error that says a message, with the words and the facts of this case."""
        told = message.filled(words or {})
        return cls(told.what, **{"money": told.money, "next": told.next, "details": told.details} | facts)

    def but(self, what: str | None = None, *, also: str = "", **others: Any) -> Self:
        """Return the same error with other words or facts, and with more details."""
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        facts["details"] = _joined("\n", self.details, also)
        return type(self)(what or str(self.args[0]), **facts | others)

    @property
    def what(self) -> str:
        """What happened, in one line."""
        return cut(self._what, _WHAT)

    @property
    def reason(self) -> str:
        """What happened and why, in one paragraph, for another message that goes on."""
        return _joined(" ", self._what, *self.details.splitlines())

    @property
    def more(self) -> str:
        """The details, and before them what the three lines had no room for."""
        what, following = self._what, self.next
        cut_off = (what if what != self.what else "", following if len(following) > NEXT else "")
        return _joined("\n", *cut_off, self.details)

    def told(self) -> dict[str, str]:
        """Return the three lines that are said first."""
        return {"what": self.what, "money": self.money.sentence, "next": cut(self.next, NEXT)}

    def lines(self) -> list[str]:
        """Return what a log is told: the three lines, and below them the details, wrapped."""
        return [f"What: {self.what}", *self._own_line(), *self._consequences(), *wrapped(self.more)]

    def __str__(self) -> str:
        """Say everything, the first line in short."""
        consequences = self._consequences() if self.next else []
        return _joined("\n", self.what, *self._own_line(), *consequences, self.more)

    @property
    def _what(self) -> str:
        return str(self.args[0])

    def _consequences(self) -> list[str]:
        told = self.told()
        return [f"Money: {told['money']}", *([f"Next: {told['next']}"] if self.next else [])]

    def _own_line(self) -> list[str]:
        return [self.kickoff_id] if len(self.kickoff_id) > _SHOWN_ID else []


def _joined(by: str, *texts: str) -> str:
    return by.join(filter(None, texts))


def execution(kickoff_id: str) -> str:
    """Name an execution in a line that is short; a long id has a line of its own below it."""
    return f"Execution {kickoff_id}" if len(kickoff_id) <= _SHOWN_ID else "The execution below"


def room_for(message: Message, words: Mapping[str, Any], **open_word: str) -> int:
    """Return how long a word of a message's first line may be, of which only the beginning is known."""
    return _WHAT - len(message.filled({**words, **open_word}).what)


class InvalidSettings(CrewError):
    """The address, the token or another setting cannot be used."""

    money: Money = Money.NOTHING
    conn_id: str = ""

    @property
    def _what(self) -> str:
        """Name the connection first, when the settings come from one."""
        fault = str(self.args[0])
        return f"The connection {self.conn_id!r} cannot be used. {fault}" if self.conn_id else fault


class InvalidKickoffId(CrewError):
    """A kickoff id that no service can have given out."""

    money: Money = Money.NOTHING


class InvalidInputs(CrewError):
    """Inputs or meta that cannot be sent, or that are not all the crew needs."""

    money: Money = Money.NOTHING


class BudgetSpent(CrewError):
    """There were as many kickoffs today as the connection allows. Nothing was sent."""

    money: Money = Money.NOTHING


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

    ``trusted`` is False when whoever was there could not prove to be the service. ``lacks_connection``: it was
    Airflow's connection that could not be read.
    """

    sent: bool = True
    trusted: bool = True
    lacks_connection: bool = False


class UnreadableAnswer(TransientError):
    """An answer came and cannot be understood."""


class AnswerTooLarge(CallError):
    """An answer over the limit. It will be as large the next time."""


class UncertainKickoff(CrewError):
    """The kickoff was sent, and whether an execution started cannot be known from here."""


class WatchError(CrewError):
    """Watching an execution ended without its result."""

    money: Money = Money.GOES_ON


class ExecutionFailed(WatchError):
    """The crew ran and failed. The execution is over."""

    money: Money = Money.ENDED
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
    """
    The service gave no usable answer for longer than an outage may last.

    ``lacks_connection``: it was Airflow's connection that could not be read.
    """

    lacks_connection: bool = False
