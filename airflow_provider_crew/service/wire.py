"""
The conversation with the service: requests to send and answers to read, without any I/O.

Each operation is a generator that yields a request and is sent the answer, or is thrown what kept it from
coming. Both clients drive the same generators, so neither can do, or say, what the other does not.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydantic import ValidationError

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.errors import (
    AnswerTooLarge,
    CallError,
    ExecutionNotFound,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Refused,
    ServiceError,
    TransientError,
    UncertainKickoff,
    Unreachable,
    UnreadableAnswer,
)
from airflow_provider_crew.service.kickoff_id import checked_kickoff_id, issued_kickoff_id, path_segment
from airflow_provider_crew.service.models import (
    CrewInputs,
    Execution,
    read_execution,
    read_inputs,
)
from airflow_provider_crew.service.payload import some_names

if TYPE_CHECKING:
    from airflow_provider_crew.service.payload import KickoffRequest
    from airflow_provider_crew.service.settings import ServiceSettings

T = TypeVar("T")

INTERRUPTED_KICKOFF = (
    "Interrupted while a kickoff was under way. It is not known whether it started an execution: the crew may be "
    "running, and paid for, without anybody watching it. Look into the crew's dashboard before starting it again."
)
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_HOW_TO_REACH = "Check the host and the port in the connection, and whether the crew is deployed."
_HOW_TO_TRUST = (
    "Check the host in the connection. If an authority of your own has signed the certificate, put the path of "
    "that authority's certificate into verify in the connection; if it has expired, have it renewed."
)

# A load balancer that gives up on an idle connection says 408 to the next request that comes along it.
_PASSING_CLIENT_ERRORS = frozenset({408, 425})
_STATUS_PATHS = {"status_first": "/status/{}", "id_first": "/{}/status"}


@dataclass(frozen=True, slots=True)
class Request:
    """
    What to send. ``path`` is percent-encoded for good: no library may decode or normalise it.

    ``secrets`` are what the body holds that nobody may read in an answer that repeats it.
    """

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def starts_work(self) -> bool:
        """Whether sending it twice would do the work twice."""
        return self.method == "POST"


Conversation = Generator[Request, Answer, T]


def advance(conversation: Conversation[T], outcome: Answer | CallError) -> Request:
    """Hand a conversation what came of its last request; StopIteration carries the end."""
    return conversation.throw(outcome) if isinstance(outcome, CallError) else conversation.send(outcome)


class CrewWire:
    """The operations of one crew, and what was learnt about its paths."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._address = settings.address
        self._status_paths = (
            tuple(_STATUS_PATHS.values())
            if settings.status_path == "auto"
            else (_STATUS_PATHS[settings.status_path],)
        )

    def inputs(self) -> Conversation[CrewInputs]:
        """Ask which inputs the crew takes."""
        request = Request("GET", "/inputs")
        answer = yield request
        self._raise_for_status(request, answer)
        try:
            return read_inputs(answer.json_object())
        except (ValueError, RecursionError) as error:
            raise self._unreadable(request, answer, error) from None

    def kickoff(self, kickoff: KickoffRequest) -> Conversation[str]:
        """Start an execution. What cannot be told apart from a started one is an uncertain kickoff."""
        request = Request("POST", "/kickoff", kickoff.body, secrets=kickoff.secrets)
        try:
            answer = yield request
            self._raise_for_status(request, answer)
            try:
                return issued_kickoff_id(answer.json_object().get("kickoff_id"))
            except (ValueError, RecursionError) as error:
                raise self._unreadable(request, answer, error) from None
        except RateLimited:
            raise
        except (TransientError, AnswerTooLarge) as error:
            if isinstance(error, Unreachable) and not error.sent:
                raise
            raise UncertainKickoff(
                f"It is not known whether the kickoff started an execution. {error} The crew may be running, and "
                "paid for, without anybody watching it. Look into the crew's dashboard before starting it again.",
            ) from None

    def status(self, kickoff_id: str) -> Conversation[Execution]:
        """Ask how an execution is doing, on whichever of the two paths the crew has."""
        segment = path_segment(checked_kickoff_id(kickoff_id))
        untried = list(self._status_paths)
        unknown: ExecutionNotFound | None = None
        while True:
            path = untried.pop(0)
            request = Request("GET", path.format(segment))
            answer = yield request
            if answer.status == HTTPStatus.NOT_FOUND:
                if answer.has_error_body:  # which some crews have for a path that they do not know, too
                    unknown = unknown or self._not_found(request, answer, kickoff_id)
                if untried:
                    continue
                if unknown:
                    raise unknown
            execution = self._read_status(request, answer, kickoff_id)
            self._status_paths = (path,)
            return execution

    def _read_status(self, request: Request, answer: Answer, kickoff_id: str) -> Execution:
        if answer.status == HTTPStatus.NOT_FOUND:
            # A gateway without the crew behind it says so as well, and the execution runs on.
            raise self._unreadable(request, answer, ValueError("it is not the crew's own"))
        self._raise_for_status(request, answer)
        try:
            execution = read_execution(answer.json_object(), kickoff_id)
        except (ValueError, RecursionError) as error:
            raise self._unreadable(request, answer, error) from None
        if execution is None:
            raise self._not_found(request, answer, kickoff_id)
        return execution

    def call(self, request: Request) -> str:
        """Name a request in a message."""
        return f"{request.method} {self._address}{request.path}"

    def too_large(
        self, request: Request, status: int | None = None, *, limit: int = MAX_ANSWER_BYTES
    ) -> AnswerTooLarge:
        """Build the error for an answer that was not read to its end."""
        call = self.call(request)
        return AnswerTooLarge(
            f"{call} answers with more than {_size(limit)}, which is not read. What is in it can be seen in the "
            "crew's dashboard.",
            http_status=status,
        )

    def unreachable(
        self, request: Request, reason: str, *, sent: bool, trusted: bool = True, timed_out: bool = False
    ) -> Unreachable:
        """Build the error for an exchange that brought no answer."""
        call = self.call(request)
        if sent:
            message = f"{call} got no complete answer: {reason}."
        else:
            advice = _HOW_TO_REACH if trusted else _HOW_TO_TRUST
            message = f"{call} did not reach the crew: {reason}. Nothing was sent. {advice}"
        return Unreachable(message, sent=sent, trusted=trusted, timed_out=timed_out)

    def _raise_for_status(self, request: Request, answer: Answer) -> None:
        if answer.is_success:
            return
        if answer.status < HTTPStatus.OK:
            # Such as 102 and 103: the work may well be under way.
            raise self._unreadable(request, answer, ValueError("it is not a final answer"))
        call = self.call(request)
        told = f"{call} answers {answer.status}.{answer.reason()}"
        match answer.status:
            case 401:
                raise NotAuthenticated(
                    f"{told} The bearer token is missing, wrong or revoked: renew it in the connection with the "
                    "one on the crew's Status tab.",
                    http_status=401,
                )
            case 403:
                raise NotAllowed(
                    f"{told} The token is known but may not do this: use the organization's token, or have the "
                    "user's permissions widened.",
                    http_status=403,
                )
            case 429:
                raise RateLimited(
                    f"{told} The crew takes no more requests for now.",
                    http_status=429,
                    retry_after=answer.retry_after,
                )
            case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR or (
                status in _PASSING_CLIENT_ERRORS and not request.starts_work
            ):
                raise ServiceError(told, http_status=status, retry_after=answer.retry_after)
        self._raise_refused(call, answer)

    def _raise_refused(self, call: str, answer: Answer) -> NoReturn:
        reason = answer.reason()
        told = f"{call} answers {answer.status}.{reason}"
        missing = answer.missing_inputs
        if answer.is_redirect:
            told += (
                f" It redirects to {answer.redirect_target or 'no place that it names'}, which is not followed. "
                "If that is where the crew is now, put that address into the connection."
            )
        elif missing and not _names_all(reason, missing):
            told += f" The crew needs these inputs as well: {some_names(missing)}."
        elif answer.status == HTTPStatus.NOT_FOUND:
            told += " There is no crew at this address: check the host in the connection."
        raise Refused(told, http_status=answer.status, missing_inputs=missing)

    def _not_found(self, request: Request, answer: Answer, kickoff_id: str) -> ExecutionNotFound:
        call = self.call(request)
        return ExecutionNotFound(
            f"The crew does not know the execution {kickoff_id}: {call} answers {answer.status}.{answer.reason()} "
            "It may be waiting for a person's answer, or it was started by another crew or long ago, or the id is "
            "not one.",
            http_status=answer.status,
            kickoff_id=kickoff_id,
            address=self._address,
        )

    def _unreadable(self, request: Request, answer: Answer, error: Exception) -> UnreadableAnswer:
        call = self.call(request)
        reason = "a field has a type it should not have" if isinstance(error, ValidationError) else str(error)
        content_type = answer.content_type or "no content type"
        return UnreadableAnswer(
            f"{call} answers {answer.status} with {content_type} that cannot be read: {reason}. It begins: "
            f"{answer.excerpt()!r}.",
            http_status=answer.status,
        )


def _names_all(text: str, names: tuple[str, ...]) -> bool:
    return all(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)


def _size(limit: int) -> str:
    kibibytes = limit // 1024
    return f"{kibibytes // 1024} MiB" if kibibytes >= 1024 else f"{kibibytes} KiB"  # noqa: PLR2004 - a MiB
