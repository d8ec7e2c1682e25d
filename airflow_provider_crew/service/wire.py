"""
The calls to the service: requests to send and answers to read, without any I/O.

Both clients are made of the same operations, so neither can do, or say, what the other does not. Each adds how a
request is exchanged for an answer.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from airflow_provider_crew.service import errors
from airflow_provider_crew.service.answer import Answer, forms_of
from airflow_provider_crew.service.kickoff_id import checked_kickoff_id, issued_kickoff_id, path_segment
from airflow_provider_crew.service.models import CrewInputs, Execution, read_execution, read_inputs
from airflow_provider_crew.service.network import is_trusted, reason_for, timed_out
from airflow_provider_crew.service.payload import KickoffRequest, some_names
from airflow_provider_crew.service.settings import ServiceSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

_MAY_BE_RUNNING = (
    "The crew may be running, and paid for, without anybody watching it. Look into the crew's dashboard before "
    "starting it again."
)
IT_IS_NOT_KNOWN = f"It is not known whether that started an execution. {_MAY_BE_RUNNING}"
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_HOW_TO_REACH = "Check the host and the port in the connection, and whether the crew is deployed."
_HOW_TO_TRUST = (
    "Check the host in the connection. If an authority of your own has signed the certificate, put the path of "
    "that authority's certificate into verify in the connection; if it has expired, have it renewed."
)
_RENEW_IT = "The bearer token is not valid: renew it in the connection with the one on the crew's Status tab."
_USE_ANOTHER = "The token may not do this: use the organization's token, or have the user's permissions widened."

# A load balancer that gives up on an idle connection says 408 to the next request that comes along it.
_PASSING_CLIENT_ERRORS = frozenset({408, 425})
_STATUS_PATHS = {"status_first": "/status/{}", "id_first": "/{}/status"}


@dataclass(frozen=True, slots=True)
class Request:
    """
    What to send. ``url`` is percent-encoded for good: no library may decode or normalise it.

    ``secrets`` are the forms of what nobody may read in an answer that repeats it.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)

    @property
    def starts_work(self) -> bool:
        """Whether sending it twice would do the work twice."""
        return self.method == "POST"

    def __str__(self) -> str:
        """Name it in a message."""
        return f"{self.method} {self.url}"


# What came of a request. An error is handed on and raised later: a traceback through the transport could show the
# token.
Outcome = Answer | errors.CallError


class CrewCalls(ABC):
    """The operations of one crew, each called once, and what was learnt about its paths."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        chosen = _STATUS_PATHS.get(settings.status_path)
        self._status_paths = (chosen,) if chosen else tuple(_STATUS_PATHS.values())

    @abstractmethod
    async def _exchange(self, request: Request) -> Outcome:
        """
        Send a request. It must be known whether one that starts work may have left.

        Such a one needs a connection of its own: a kept one that the peer has closed ends in a reset, which looks
        like a lost answer.
        """

    async def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        request = self._request("GET", "/inputs")
        return _read(request, _answer(await self._exchange(request)), read_inputs)

    async def kickoff(self, kickoff: KickoffRequest) -> str:
        """
        Send a kickoff, and return its kickoff id.

        What cannot be told apart from a started execution is an uncertain kickoff.
        """
        request = self._request("POST", "/kickoff", kickoff.body, *kickoff.secrets)
        try:
            outcome = await self._exchange(request)
        except BaseException:
            log.warning("Interrupted while a kickoff was under way. %s", IT_IS_NOT_KNOWN)
            raise
        try:
            return _read(request, _answer(outcome), lambda told: issued_kickoff_id(told.get("kickoff_id")))
        except errors.RateLimited:
            raise
        except (errors.TransientError, errors.AnswerTooLarge) as error:
            if isinstance(error, errors.Unreachable) and not error.sent:
                raise
            raise errors.UncertainKickoff(
                f"It is not known whether the kickoff started an execution. {error} {_MAY_BE_RUNNING}"
            ) from None

    async def status(self, kickoff_id: str) -> Execution:
        """Ask how an execution is doing, on whichever of the two paths the crew has."""
        segment = path_segment(checked_kickoff_id(kickoff_id))
        failure: errors.CallError | None = None
        for path in self._status_paths:
            request = self._request("GET", path.format(segment))
            answer = _answer(await self._exchange(request))
            if answer.status != HTTPStatus.NOT_FOUND:
                execution = _read(request, answer, partial(read_execution, kickoff_id=kickoff_id))
                if execution is None:
                    raise self._not_found(request, answer, kickoff_id)
                self._status_paths = (path,)
                return execution
            if not isinstance(failure, errors.ExecutionNotFound):
                failure = self._not_found(request, answer, kickoff_id)
        raise cast("errors.CallError", failure)

    def _unreachable(self, request: Request, error: Exception, *, sent: bool) -> errors.Unreachable:
        """Build the error for an exchange that brought no answer."""
        reason = reason_for(error, connected=sent, settings=self.settings)
        trusted = is_trusted(error)
        if sent:
            message = f"{request} got no complete answer: {reason}."
        else:
            advice = _HOW_TO_REACH if trusted else _HOW_TO_TRUST
            message = f"{request} did not reach the crew: {reason}. Nothing was sent. {advice}"
        return errors.Unreachable(message, sent=sent, trusted=trusted, timed_out=timed_out(error))

    def _request(self, method: str, path: str, body: bytes | None = None, *secrets: str) -> Request:
        # Put together anew for each request: who shows a client shows no token.
        headers = {
            "Accept": "application/json",
            # No compression, and none undone: a small answer could become one that does not fit into memory.
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {self.settings.token}",
            "User-Agent": self.settings.user_agent,
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        hidden = forms_of(self.settings.token, *secrets)
        return Request(method, f"{self.settings.address}{path}", headers, hidden, body)

    def _not_found(self, request: Request, answer: Answer, kickoff_id: str) -> errors.CallError:
        if not (answer.is_success or answer.has_error_body):
            # A gateway without the crew behind it says 404 as well, and the execution runs on.
            return _unreadable(request, answer, "it is not the crew's own")
        return errors.ExecutionNotFound(
            f"The crew does not know the execution {kickoff_id}: {_told(request, answer)} It may be waiting for a "
            "person's answer, or it was started by another crew or long ago, or the id is not one.",
            http_status=answer.status,
            kickoff_id=kickoff_id,
            address=self.settings.address,
        )


def too_large(request: Request, status: int, limit: int) -> errors.AnswerTooLarge:
    """Build the error for an answer that was not read to its end."""
    return errors.AnswerTooLarge(
        f"{request} answers with more than {limit / 1024**2:g} MiB, which is not read. What is in it can be seen "
        "in the crew's dashboard.",
        http_status=status,
    )


def _answer(outcome: Outcome) -> Answer:
    if isinstance(outcome, errors.CallError):
        raise outcome
    return outcome


def _read(request: Request, answer: Answer, read: Callable[[Mapping[str, Any]], T]) -> T:
    if not answer.is_success:
        raise _failure(request, answer)
    try:
        return read(answer.json_object())
    except ValidationError:
        fault = "a field has a type it should not have"
    except RecursionError:
        fault = "it is nested too deeply"
    except ValueError as error:
        fault = str(error)
    raise _unreadable(request, answer, fault)


def _failure(request: Request, answer: Answer) -> errors.CallError:
    status, told = answer.status, _told(request, answer)
    if status < HTTPStatus.OK:  # such as 102 and 103: the work may well be under way
        return _unreadable(request, answer, "it is not a final answer")
    if status == HTTPStatus.UNAUTHORIZED:
        return errors.NotAuthenticated(f"{told} {_RENEW_IT}", http_status=status)
    if status == HTTPStatus.FORBIDDEN:
        return errors.NotAllowed(f"{told} {_USE_ANOTHER}", http_status=status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        told = f"{told} The crew takes no more requests for now."
        return errors.RateLimited(told, http_status=status, retry_after=answer.retry_after)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or (
        request.method == "GET" and status in _PASSING_CLIENT_ERRORS
    ):
        return errors.ServiceError(told, http_status=status, retry_after=answer.retry_after)
    return errors.Refused(told + _advice(answer), http_status=status, missing_inputs=answer.missing_inputs)


def _advice(answer: Answer) -> str:
    """Say what a refusal needs besides the service's own words."""
    if answer.status < HTTPStatus.BAD_REQUEST:
        return (
            f" It redirects to {answer.redirect_target or 'no place that it names'}, which is not followed. If "
            "that is where the crew is now, put that address into the connection."
        )
    if any(name not in answer.reason() for name in answer.missing_inputs):
        return f" The crew needs these inputs as well: {some_names(answer.missing_inputs)}."
    if answer.status == HTTPStatus.NOT_FOUND:
        return " There is no crew at this address: check the host in the connection."
    return ""


def _unreadable(request: Request, answer: Answer, fault: str) -> errors.UnreadableAnswer:
    return errors.UnreadableAnswer(
        f"{request} answers {answer.status} with {answer.content_type} that cannot be read: {fault}. It begins: "
        f"{answer.excerpt()!r}.",
        http_status=answer.status,
    )


def _told(request: Request, answer: Answer) -> str:
    return f"{request} answers {answer.status}.{answer.reason()}"
