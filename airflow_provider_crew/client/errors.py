"""Errors, and their conversion to plain JSON data that one process can pass to another."""

import math
import re
from collections.abc import Mapping
from dataclasses import InitVar, field
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# The serialization between processes has no room for wider integers.
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

# No crew returns JSON nested more deeply than this, and storing it would exceed the recursion limit.
_MAX_DEPTH = 64


def storable_text(text: str) -> str:
    """Replace characters that PostgreSQL or JSON cannot store: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\ufffd", text)


def storable_json(value: Any, depth: int = 0) -> Any:
    """
    Return JSON data that every store accepts. Raise ValueError if it is nested too deeply.

    Integers that are too wide become strings, so that no digit is lost.
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


class Cost(StrEnum):
    """Billing state of an execution, when last known. The most urgent is the first."""

    UNKNOWN = "unknown"
    RUNNING = "running"
    ENDED = "ended"
    NONE = "none"

    @property
    def rank(self) -> int:
        """Position among all. 0 is the most urgent."""
        return [*Cost].index(self)

    @property
    def sentence(self) -> str:
        """Sentence for a message."""
        return {
            Cost.NONE: "none; nothing was started.",
            Cost.RUNNING: "billed; the execution is running, or waits for human input.",
            Cost.ENDED: "billed; the execution has ended.",
            Cost.UNKNOWN: "unknown; an execution may have started.",
        }[self]


# With this status, a deployed crew may report for good that an execution has failed.
FAILED_FOR_GOOD = HTTPStatus.INTERNAL_SERVER_ERROR
TRY_LATER = "Try again when the crew responds again."
_ADD_NAMES = "Add the missing names to `inputs`."

# Classes of the errors that one process may pass to another.
_KINDS: dict[str, type["CrewError"]] = {}


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class _Typed(Exception):
    """Base class whose subclasses take their attributes as arguments. It costs less time than real dataclasses."""


class CrewError(_Typed):
    """
    Base class of the errors between this package and a crew.

    :param message: The event. It begins with the reason, because a log may show no more than 80 characters.
    :param at: Where the crew was at the last poll, and for how long the execution had been running.
    :param cost: Billing state of the execution.
    :param spent: What the executions of a batch have used.
    :param next_step: Action for the reader. Only ``task/verdict.py`` knows it, ``fix`` is a part of it.
    :param kickoff_id: The execution, if there is one.
    :param error: The crew's own reason. Defaults to the message.
    """

    if TYPE_CHECKING:
        message: InitVar[str] = field(kw_only=False)
    at: str = ""
    cost: Cost = Cost.UNKNOWN
    spent: str = ""
    next_step: str = ""
    kickoff_id: str = ""
    error: str = ""
    fixes: ClassVar[Mapping[str, str]] = {}
    """What a person can do if the attribute of that name is set. The first one counts."""
    names: ClassVar[tuple[str, ...]] = ("at", "cost", "spent", "next_step", "kickoff_id", "error")
    """Attributes, each of which is an argument."""

    def __init_subclass__(cls) -> None:
        cls.names = tuple(dict.fromkeys((*cls.names, *(name for name in cls.__annotations__ if name != "fixes"))))
        _KINDS[cls.__name__] = cls

    if not TYPE_CHECKING:

        def __init__(self, message: str, **attributes: Any) -> None:
            super().__init__(message)
            vars(self).update({name: attributes.get(name, getattr(self, name)) for name in self.names})
            self.error = self.error or message

    @property
    def fix(self) -> str:
        """Action for a person. Empty if there is none."""
        return next((fix for name, fix in self.fixes.items() if not name or getattr(self, name)), "")

    @property
    def event(self) -> str:
        """Description of the event."""
        return str(self.args[0])

    def replace(self, event: str | None = None, **changes: Any) -> Self:
        """Return a copy of the error with other attributes."""
        facts = {name: getattr(self, name) for name in self.names}
        return type(self)(event or self.event, **facts | changes)

    def as_dict(self) -> dict[str, str]:
        """Return the fields that the Crew tab shows."""
        where = {"error": type(self).__name__, "event": self.event, "at": self.at}
        return where | {"cost": self.cost.value, "next_step": self.next_step}

    @property
    def billed(self) -> str:
        """Cost as a sentence, and what the executions of a batch have used."""
        cost = "billed;" if self.spent and self.cost is not Cost.UNKNOWN else self.cost.sentence
        return f"{cost} {self.spent}".strip()

    @property
    def story(self) -> str:
        """The event, its place and execution, the cost and the next step, one per line."""
        at = ", ".join(filter(None, (self.at, self.kickoff_id and f"execution {self.kickoff_id}")))
        lines = {"At": at, "Cost": self.billed, "Next": self.next_step}
        return "\n".join([self.event, *(f"{name}: {line}" for name, line in lines.items() if line)])

    def __str__(self) -> str:
        """Return the story and the class with the title of the page that lists it, one per line."""
        return f"{self.story}\nError: {type(self).__name__} (see Errors and troubleshooting in the documentation)"


class InvalidSettings(CrewError):
    """The address, the token or another setting is unusable."""

    cost: Cost = Cost.NONE
    fix = "Fix the connection, or the configuration that the error mentions."


class InvalidKickoffId(CrewError):
    """The crew cannot have issued this kickoff ID."""

    fix = "Find the execution in the crew's dashboard, and wait for it with CrewExecutionSensor."


class InvalidInputs(CrewError):
    """Inputs or options are missing or cannot be sent."""

    cost: Cost = Cost.NONE
    missing_inputs: tuple[str, ...] = ()
    fixes: ClassVar = {"missing_inputs": _ADD_NAMES, "": "Fix the inputs or options of the task."}


class DailyLimitReached(CrewError):
    """The connection's daily kickoff limit is reached. Nothing was sent."""

    cost: Cost = Cost.NONE
    fix = "Wait until midnight (UTC), or raise max_kickoffs_per_day."


class InvalidOutputType(CrewError):
    """pydantic cannot validate against this output_type. Nothing was sent."""

    fix = "Fix `output_type`."


class CallError(CrewError):
    """A call failed to return the requested response."""

    http_status: int | None = None


class NotAuthenticated(CallError):
    """401: the bearer token is missing, wrong or no longer valid."""

    cost: Cost = Cost.NONE
    fix = "Replace the token in the connection with the one from the crew's Status tab."


class NotAllowed(CallError):
    """403: the token is valid, but lacks permission."""

    cost: Cost = Cost.NONE
    fix = "Use the organization token, or extend the permissions of the user."


class ExecutionNotFound(CallError):
    """The execution is unknown to the crew: not yet, no longer, or while it waits for human input."""

    address: str = ""
    fix = (
        "Check the kickoff ID. If the crew may wait for human input, set human_input=True. Look in its dashboard "
        "before you start another execution."
    )


class Rejected(CallError):
    """Another 3xx or 4xx: the crew rejected the request, so nothing was started."""

    cost: Cost = Cost.NONE
    missing_inputs: tuple[str, ...] = ()

    @property
    def blames_inputs(self) -> bool:
        """Whether the crew may accept a kickoff with other inputs."""
        return self.http_status in {400, 413, 422}

    @property
    def fix(self) -> str:
        """Action for a person, by the kind of rejection."""
        if self.http_status and self.http_status < HTTPStatus.BAD_REQUEST:
            return "If the crew has moved, put the new address into the connection."
        if self.http_status == HTTPStatus.NOT_FOUND and not self.missing_inputs:
            return "Check the host in the connection."
        return _ADD_NAMES if self.missing_inputs else "Fix what the response reports."


class TransientError(CallError):
    """The same call may succeed later. ``timed_out``: there was no response in time."""

    retry_after: float | None = None
    timed_out: bool = False
    fixes: ClassVar = {"": TRY_LATER}

    @property
    def may_be_waking_up(self) -> bool:
        """Whether a crew that is starting up after a quiet period responds like this."""
        return self.timed_out or self.http_status in {502, 503, 504}


class RateLimited(TransientError):
    """429: too many requests. Nothing was started."""

    cost: Cost = Cost.NONE


class ServiceError(TransientError):
    """5xx: the crew or a gateway failed. The work may have begun."""


class Unreachable(TransientError):
    """
    There was no response. ``sent`` is False only if the request was certainly not sent.

    ``tls_failed``: TLS was not established or broke.
    ``lacks_connection``: Airflow's connection is unreadable.
    """

    sent: bool = True
    tls_failed: bool = False
    lacks_connection: bool = False
    fixes: ClassVar = {
        "lacks_connection": "Check that the connection exists, that its type is Crew, and that Airflow's API "
        "server and secrets backend respond. Percent-encode the token in a URI.",
        "tls_failed": "Check the scheme (http or https), host and port in the connection. If your own certificate "
        "authority signed the certificate, put the path of that authority's certificate into `verify`.",
        "sent": TRY_LATER,
        "": "Check the host, port and proxy in the connection, whether the crew is deployed, and whether a "
        "firewall blocks the connection.",
    }


class UnreadableResponse(TransientError):
    """The response is unreadable."""

    fix = "Check the host in the connection: another server may be responding."


class ResponseTooLarge(CallError):
    """The response exceeds the size limit, so a retry fails in the same way."""

    fix = "Read the result in the crew's dashboard."


class UncertainKickoff(CrewError):
    """The kickoff was sent, and it is unknown whether it started an execution."""

    fix = "Check the crew's dashboard before you start another execution."


class NotCancelled(CrewError):
    """
    The execution was not cancelled, or its status does not confirm it.

    ``passes``: asking the crew again may help.
    """

    cost: Cost = Cost.RUNNING
    passes: bool = False
    fix = "Check the crew's dashboard before you start another execution."

    @property
    def is_refused(self) -> bool:
        """Whether the crew has certainly not taken the request."""
        return self.cost is Cost.RUNNING and not self.passes


class WatchError(CrewError):
    """A wait ended without the result of its execution."""

    cost: Cost = Cost.RUNNING


class ExecutionFailed(WatchError):
    """The crew failed. The execution has ended."""

    cost: Cost = Cost.ENDED
    execution_time: float | None = None
    usage: Mapping[str, float] | None = None
    fix = "If you still need the result, start another execution (billed)."


class ExecutionStopped(ExecutionFailed):
    """The execution was stopped outside this task, such as by a user in the crew's dashboard."""


class ExecutionCancelled(ExecutionFailed):
    """The task cancelled its execution because a timeout passed or Airflow ended the task."""


class InvalidOutput(WatchError):
    """
    The execution has completed, but its output does not match ``output_type``.

    ``misfits`` lists the fields that do not match. It is empty if the output could not be checked.
    """

    cost: Cost = Cost.ENDED
    misfits: tuple[str, ...] = ()
    fix = "Fix `output_type`."


class HumanInputNeeded(WatchError):
    """The crew waits for human input, at which the caller asked the watch to stop."""


class WaitStopped(WatchError):
    """A user chose to stop waiting for a crew that waits for human input."""

    fix = "Answer the crew in its dashboard."


class WaitedTooLong(WatchError):
    """The timeout passed while the execution was running. ``limit``: which one."""

    limit: str = "timeout"

    fix = "Wait for the execution with its kickoff ID and a longer timeout. Do not start another."


class WatchBroken(WatchError):
    """The execution can no longer be polled, and waiting does not help. ``cause`` is the reason."""

    cause: CrewError | None = None

    @property
    def fix(self) -> str:
        """Action for a person, from the cause."""
        return self.cause.fix if self.cause else ""


class ExecutionUnknown(WatchError):
    """
    The crew reports NOT FOUND for an execution that exists, as it does while it waits for human input.

    ``elsewhere`` is the address of the kickoff, if a different one was polled. ``has_completed``: an earlier poll
    saw the execution complete, but its result is unreadable.
    """

    lasted: float = 0.0
    elsewhere: str = ""
    has_completed: bool = False
    fixes: ClassVar = {
        "has_completed": "Check the crew's dashboard, which may show the result.",
        "elsewhere": "Point the connection to the address of the kickoff.",
        "": "Answer the crew in its dashboard.",
    }


class LostContact(WatchError):
    """There was no usable response for longer than ``max_outage``. ``cause`` is the failure of the last poll."""

    cause: CrewError | None = None

    @property
    def fix(self) -> str:
        """Action for a person: this error's own, or that for the cause."""
        if isinstance(self.cause, CallError) and self.cause.http_status == FAILED_FOR_GOOD:
            return "Check the crew's dashboard, which may show that the execution failed."
        return self.cause.fix if self.cause else TRY_LATER


# Attributes that stay in the process that raised the error.
_STAYS_HERE = {"misfits", "missing_inputs"}


def error_record(error: CrewError) -> dict[str, Any]:
    """Return the class, the message and the attributes of an error as JSON data."""
    facts = {name: getattr(error, name) for name in error.names if name not in _STAYS_HERE}
    if isinstance(cause := facts.get("cause"), CrewError):
        facts["cause"] = error_record(cause)
    return dict(storable_json({"kind": type(error).__name__, "message": error.event, "facts": facts}))


def recorded_error(record: Any) -> CrewError:
    """
    Return the error of a record. Raise ValueError if the record is malformed.

    During an upgrade, the record may come from a newer version. An unknown class becomes CrewError, and unknown
    attributes are dropped.
    """
    match record:
        case {"kind": str(name), "message": str(message), "facts": Mapping() as facts}:
            kind = _KINDS.get(name, CrewError)
            attributes = {name: facts[name] for name in kind.names if name in facts}
            if attributes.pop("cost", None) in list(Cost):
                attributes["cost"] = Cost(facts["cost"])
            if attributes.get("cause"):
                attributes["cause"] = recorded_error(attributes["cause"])
            return kind(message, **attributes)
    raise ValueError("the record of an error is malformed")
