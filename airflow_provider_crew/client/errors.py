"""Errors as plain JSON data, to travel from the process that watched to the one that acts on it."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self, dataclass_transform

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# Wider integers do not fit into what carries a value from one process to another.
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

# Deeper JSON than this is no data that a crew puts out, and it breaks the recursion of whoever stores it.
_MAX_DEPTH = 64


def storable_text(text: str) -> str:
    """Replace what PostgreSQL and JSON refuse to store: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\ufffd", text)


def text_of(value: Any) -> str:
    """Return a text as it is, nothing as an empty one, and anything else as JSON."""
    if value is None:
        return ""
    return storable_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def storable_json(value: Any, depth: int = 0) -> Any:
    """
    Return JSON data that every store takes; raise ValueError when it is nested too deeply.

    Integers that are too wide become texts, so that no digit is lost.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable_text(key): storable_json(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [storable_json(item, depth + 1) for item in value]
        case float() if not math.isfinite(value):
            return None
        case int() if not MIN_INT <= value <= MAX_INT:
            return str(value)
    return value


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


# What an error tells whoever catches it, and no other process.
_STAYS_HERE = {"cause", "misfits", "missing_inputs"}


def error_record(error: CrewError) -> dict[str, Any]:
    """Return the kind, the message and the facts of an error."""
    facts = {each.name: getattr(error, each.name) for each in fields(error) if each.name not in _STAYS_HERE}
    told = {"kind": type(error).__name__, "message": str(error.args[0]), "facts": facts}
    return dict(storable_json(told))


def recorded_error(record: Any) -> CrewError:
    """
    Return the error of a record; ValueError when it is none.

    While an installation is being upgraded, the record may come from a newer version: a kind that is not known
    here is a plain CrewError, and a fact that is not known here is left out.
    """
    match record:
        case {"kind": str(name), "message": str(message), "facts": Mapping() as facts}:
            found = globals().get(name)
            kind = found if isinstance(found, type) and issubclass(found, CrewError) else CrewError
            known = {each.name for each in fields(kind)} & facts.keys()
            told = {name: facts[name] for name in known}
            if told.get("cost") not in set(Cost):
                told.pop("cost", None)
            return kind(message, **told | ({"cost": Cost(told["cost"])} if "cost" in told else {}))
    raise ValueError("this is no record of an error")
