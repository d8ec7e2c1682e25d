"""
Every way a call or an execution can end badly.

One class per outcome, with the facts as attributes, so that a caller decides by class and a person reads
the message. Facts are keyword arguments with defaults, which keeps every error picklable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GATEWAY_WITHOUT_CREW = frozenset({502, 503, 504})


class CrewError(Exception):
    """Anything that goes wrong between this package and a crew."""


class InvalidSettings(CrewError):
    """The address, the token or another setting cannot be used. Nothing was sent."""

    def __init__(self, message: str, *, field: str = "", conn_id: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.conn_id = conn_id

    @property
    def fault(self) -> str:
        """What is wrong and how to mend it, for where the connection need not be named."""
        return str(self.args[0])

    def __str__(self) -> str:
        """Name the connection first, when the settings come from one."""
        return f"The connection {self.conn_id!r} cannot be used. {self.fault}" if self.conn_id else self.fault


class InvalidKickoffId(CrewError):
    """A kickoff id that no service can have given out. Nothing was sent."""

    def __init__(self, message: str, *, kickoff_id: str = "") -> None:
        super().__init__(message)
        self.kickoff_id = kickoff_id


class InvalidInputs(CrewError):
    """Inputs or meta not sent: ``path`` leads to what is no JSON, ``missing`` names what is not given."""

    def __init__(self, message: str, *, path: str = "", missing: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.path = path
        self.missing = tuple(missing)


class CallError(CrewError):
    """A call did not get the answer it asked for."""

    def __init__(self, message: str, *, call: str = "", http_status: int | None = None) -> None:
        super().__init__(message)
        self.call = call
        self.http_status = http_status


class NotAuthenticated(CallError):
    """401: the bearer token is missing, wrong or no longer valid."""


class NotAllowed(CallError):
    """403: the token is known, but not allowed to do this."""


class ExecutionNotFound(CallError):
    """The service does not know the execution: not yet, not any more, or while it waits for a person."""

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        http_status: int | None = None,
        kickoff_id: str = "",
        address: str = "",
    ) -> None:
        super().__init__(message, call=call, http_status=http_status)
        self.kickoff_id = kickoff_id
        self.address = address


class Refused(CallError):
    """Another 3xx or 4xx: the service understood and declined, so nothing was started."""

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        http_status: int | None = None,
        missing_inputs: Sequence[str] = (),
    ) -> None:
        super().__init__(message, call=call, http_status=http_status)
        self.missing_inputs = tuple(missing_inputs)


class TransientError(CallError):
    """The same call may well succeed a little later."""

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        http_status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, call=call, http_status=http_status)
        self.retry_after = retry_after

    @property
    def may_be_waking_up(self) -> bool:
        """Whether a crew answers like this for a while after a quiet period."""
        return self.http_status in _GATEWAY_WITHOUT_CREW


class RateLimited(TransientError):
    """429: too many requests; nothing was started."""


class ServiceError(TransientError):
    """5xx: the service or a gateway in front of it failed; the work may have begun all the same."""


class Unreachable(TransientError):
    """
    No answer came. ``sent`` is False only when it is certain that no request reached the service.

    ``trusted`` is False when whoever was there could not prove to be the service. ``timed_out`` is True when time
    was over, and nobody said no.
    """

    def __init__(  # noqa: PLR0913 - facts, each by its name
        self,
        message: str,
        *,
        call: str = "",
        reason: str = "",
        sent: bool = True,
        trusted: bool = True,
        timed_out: bool = False,
    ) -> None:
        super().__init__(message, call=call)
        self.reason = reason
        self.sent = sent
        self.trusted = trusted
        self.timed_out = timed_out

    @property
    def may_be_waking_up(self) -> bool:
        """Whether a crew answers like this for a while after a quiet period."""
        return self.timed_out


class UnreadableAnswer(TransientError):
    """An answer came and cannot be understood."""

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        http_status: int | None = None,
        content_type: str = "",
        excerpt: str = "",
    ) -> None:
        super().__init__(message, call=call, http_status=http_status)
        self.content_type = content_type
        self.excerpt = excerpt


class AnswerTooLarge(CallError):
    """An answer over the limit. It will be as large the next time."""

    def __init__(self, message: str, *, call: str = "", http_status: int | None = None, limit: int = 0) -> None:
        super().__init__(message, call=call, http_status=http_status)
        self.limit = limit


class UncertainKickoff(CrewError):
    """The kickoff was sent, and whether an execution started cannot be known from here."""

    def __init__(self, message: str, *, cause: CallError | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class WatchError(CrewError):
    """Watching an execution ended without its result."""

    def __init__(self, message: str, *, kickoff_id: str = "") -> None:
        super().__init__(message)
        self.kickoff_id = kickoff_id


class ExecutionFailed(WatchError):
    """The crew ran and failed. The execution is over."""

    def __init__(
        self,
        message: str,
        *,
        kickoff_id: str = "",
        error: str = "",
        execution_time: float | None = None,
        usage: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(message, kickoff_id=kickoff_id)
        self.error = error
        self.execution_time = execution_time
        self.usage = None if usage is None else dict(usage)


class WaitedTooLong(WatchError):
    """The deadline passed while the execution was still going."""

    def __init__(self, message: str, *, kickoff_id: str = "", waited: float = 0.0, last_seen: str = "") -> None:
        super().__init__(message, kickoff_id=kickoff_id)
        self.waited = waited
        self.last_seen = last_seen


class WatchBroken(WatchError):
    """The execution can no longer be read, and waiting would not mend it: the ``cause`` is no passing one."""

    def __init__(self, message: str, *, kickoff_id: str = "", cause: CallError | None = None) -> None:
        super().__init__(message, kickoff_id=kickoff_id)
        self.cause = cause


class ExecutionUnknown(WatchError):
    """
    The service does not know an execution that certainly exists.

    A crew that waits for a person's answer reads like this, so it may be alive, and paid for. ``elsewhere`` is the
    address at which it was kicked off, when another one was asked. ``has_completed``: it was seen to have
    completed, and only its result is out of reach.
    """

    def __init__(
        self,
        message: str,
        *,
        kickoff_id: str = "",
        lasted: float = 0.0,
        elsewhere: str = "",
        has_completed: bool = False,
    ) -> None:
        super().__init__(message, kickoff_id=kickoff_id)
        self.lasted = lasted
        self.elsewhere = elsewhere
        self.has_completed = has_completed


class LostContact(WatchError):
    """The service gave no usable answer for longer than an outage may last."""

    def __init__(
        self, message: str, *, kickoff_id: str = "", lasted: float = 0.0, cause: CallError | None = None
    ) -> None:
        super().__init__(message, kickoff_id=kickoff_id)
        self.lasted = lasted
        self.cause = cause
