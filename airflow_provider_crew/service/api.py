"""
The calls to the service, without I/O: each yields requests, receives their outcomes, and returns a model.

Both clients run the same flows, so neither can do what the other cannot. A client adds only how a request is
exchanged for an answer.
"""

import logging
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import ValidationError

from airflow_provider_crew.service import errors, messages
from airflow_provider_crew.service.answer import Answer, forms_of
from airflow_provider_crew.service.kickoff_id import checked_kickoff_id, issued_kickoff_id, path_segment
from airflow_provider_crew.service.messages import Money
from airflow_provider_crew.service.models import CrewInputs, Execution, read_execution, read_inputs
from airflow_provider_crew.service.network import is_trusted, proxy_for, reason_for, timed_out
from airflow_provider_crew.service.payload import KickoffRequest, some_names
from airflow_provider_crew.service.settings import ServiceSettings, secrets_of_proxy
from airflow_provider_crew.service.text import warn

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 64 * 1024 * 1024
# An error page is read for its reason, and may be of any length.
MAX_ERROR_BYTES = 64 * 1024

# A load balancer that gives up on an idle connection says 408 to the next request that comes along it.
_PASSING_CLIENT_ERRORS = frozenset({408, 425})
# A gateway may answer these after it has passed the request on: See Other, Request Timeout, Conflict, and Client
# Closed Request.
_UNCERTAIN_REFUSALS = frozenset({303, 408, 409, 499})
_NOWHERE = "no place that it names"
_STATUS_PATHS = {"status_first": "/status/{}", "id_first": "/{}/status"}


@dataclass(frozen=True, slots=True)
class Request:
    """
    What to send. ``url`` is percent-encoded for good: no library may decode or normalise it.

    ``call`` is its name in a line that is short. ``secrets`` are the forms of what nobody may read in an answer
    that repeats it. ``kickoff_id`` is the execution that it asks after.
    """

    method: str
    url: str
    call: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    kickoff_id: str = ""

    @property
    def starts_work(self) -> bool:
        """Whether sending it twice would do the work twice."""
        return self.method == "POST"

    @property
    def facts(self) -> dict[str, Any]:
        """What an error of this call knows: the execution asked after, which is paid for, if there is one."""
        if self.kickoff_id:
            return {"kickoff_id": self.kickoff_id, "money": Money.GOES_ON}
        return {} if self.starts_work else {"money": Money.NOTHING}

    def __str__(self) -> str:
        """Name it in a message."""
        return f"{self.method} {self.url}"


# An error is received like an answer and raised by the flow: a traceback of the transport could show the token.
Outcome = Answer | errors.CallError
Flow = Generator[Request, Outcome, T]


class CrewApi:
    """The calls of one crew, and which of the two status paths it has."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        chosen = _STATUS_PATHS.get(settings.status_path)
        self._status_paths = (chosen,) if chosen else tuple(_STATUS_PATHS.values())

    def inputs(self) -> Flow[CrewInputs]:
        """Ask which inputs the crew takes."""
        request = self._request("GET", "/inputs")
        return _read(request, _answer((yield request)), read_inputs)

    def kickoff(self, kickoff: KickoffRequest) -> Flow[str]:
        """
        Send a kickoff once, and return its kickoff ID.

        Any outcome is an uncertain kickoff, unless it proves that no execution started.
        """
        request = self._request("POST", "/kickoff", kickoff.body, *kickoff.secrets)
        try:
            outcome = yield request
        except GeneratorExit:
            warn(log, f"Interrupted while a kickoff was under way. {messages.UNCERTAIN.what}")
            raise
        started = _started(outcome)
        try:
            kickoff_id = _read(request, _answer(outcome), lambda told: issued_kickoff_id(told.get("kickoff_id")))
        except errors.CallError as error:
            if not started and _proves_nothing_started(error):
                raise
            shown = messages.UNCERTAIN_WITH_ID if started else messages.UNCERTAIN
            words = {"why": error.reason, "kickoff_id": started}
            raise errors.UncertainKickoff.saying(shown, words, kickoff_id=started) from None
        # Before the caller has it: a cancelled coroutine never returns it, and the execution is paid for.
        log.info("Execution %s: kicked off", kickoff_id)
        return kickoff_id

    def status(self, kickoff_id: str) -> Flow[Execution]:
        """Ask how an execution is doing, on whichever of the two paths the crew has."""
        segment = path_segment(checked_kickoff_id(kickoff_id))
        failure: errors.CallError | None = None
        for path in self._status_paths:
            request = self._request("GET", path.format(segment), kickoff_id=kickoff_id)
            answer = _answer((yield request))
            if answer.status != HTTPStatus.NOT_FOUND:
                execution = _read(request, answer, partial(read_execution, kickoff_id=kickoff_id))
                if execution is None:
                    raise self._not_found(request, answer, kickoff_id)
                self._status_paths = (path,)
                return execution
            if not isinstance(failure, errors.ExecutionNotFound):
                failure = self._not_found(request, answer, kickoff_id)
        raise cast("errors.CallError", failure)

    def unreachable(self, request: Request, error: BaseException, *, sent: bool) -> errors.Unreachable:
        """Build the error for an exchange that brought no answer."""
        reason = reason_for(error, connected=sent, settings=self.settings)
        trusted = is_trusted(error)
        message = messages.NO_ANSWER if sent else messages.NOT_REACHED if trusted else messages.NOT_TRUSTED
        words = {"call": request.call, "request": request, "reason": reason, "host": self.settings.host}
        known = {"sent": sent, "trusted": trusted, "timed_out": timed_out(error)}
        return errors.Unreachable.saying(message, words, **known, **request.facts)

    def _request(
        self, method: str, path: str, body: bytes | None = None, *secrets: str, kickoff_id: str = ""
    ) -> Request:
        # Put together anew for each request: who shows a client shows no token.
        headers = {
            "Accept": "application/json",
            # Some gateways compress all the same; received() undoes that.
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {self.settings.token}",
            "User-Agent": self.settings.user_agent,
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        hidden = forms_of(self.settings.token, *secrets_of_proxy(proxy_for(self.settings)), *secrets)
        call = f"{method} status" if kickoff_id else f"{method} {path}"
        return Request(method, f"{self.settings.address}{path}", call, headers, hidden, body, kickoff_id)

    def _not_found(self, request: Request, answer: Answer, kickoff_id: str) -> errors.CallError:
        if not (answer.is_success or answer.has_error_body):
            # A gateway without the crew behind it says 404 as well, and the execution runs on.
            return _unreadable(request, answer, "it is not the crew's own")
        return errors.ExecutionNotFound.saying(
            messages.NOT_FOUND,
            {"execution": errors.execution(kickoff_id), "told": _told(request, answer)},
            http_status=answer.status,
            kickoff_id=kickoff_id,
            address=self.settings.address,
        )


class Done(NamedTuple):
    """The end of a flow."""

    value: Any


def advance(flow: Flow[Any], outcome: Outcome | None) -> Request | Done:
    """Hand a flow the outcome of its last request; return its next request, or its end."""
    try:
        return flow.send(outcome)  # type: ignore[arg-type] # a flow begins with None
    except StopIteration as end:
        return Done(end.value)


def most_bytes(status: int, largest: int | None = None) -> int:
    """Return how much to read of an answer; the rest of an error page is left unread."""
    return (largest or MAX_ANSWER_BYTES) if HTTPStatus(200) <= status < HTTPStatus(300) else MAX_ERROR_BYTES


def received(request: Request, status: int, headers: Mapping[str, str], body: bytes, most: int) -> Outcome:
    """
    Return the answer of an exchange, or the error for one that is too large to read.

    :param body: What was read of it, at least one byte more than ``most`` if there is more.
    """
    if headers.get("Content-Encoding", "").strip().lower() in {"gzip", "x-gzip", "deflate"}:
        with suppress(zlib.error):  # what it is instead will be unreadable as JSON
            body = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, most + 1)
    if len(body) > most:
        if HTTPStatus(200) <= status < HTTPStatus(300):
            words = {"call": request.call, "request": request, "limit": f"{most / 1024**2:g}"}
            return errors.AnswerTooLarge.saying(messages.TOO_LARGE, words, http_status=status, **request.facts)
        body = body[:most]
    return Answer(status, headers, body, request.secrets)


def _started(outcome: Outcome) -> str:
    """Return the ID of the execution that an answer names, whatever its HTTP status."""
    if isinstance(outcome, Answer):
        try:
            return issued_kickoff_id(outcome.json_object().get("kickoff_id"))
        except (ValueError, RecursionError):
            pass
    return ""


def _proves_nothing_started(error: errors.CallError) -> bool:
    """Whether the outcome of a kickoff proves that no execution started; the default of every doubt is no."""
    match error:
        case errors.Unreachable():
            return not error.sent
        case errors.NotAuthenticated() | errors.NotAllowed() | errors.RateLimited():
            return True
        case errors.Refused():
            return error.http_status not in _UNCERTAIN_REFUSALS
    return False


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
    status = answer.status
    words = {"call": request.call, "status": status, "told": _told(request, answer)}
    facts = {"http_status": status, "error": answer.reason().strip()} | request.facts
    if status < HTTPStatus.OK:  # such as 102 and 103: the work may well be under way
        return _unreadable(request, answer, "it is not a final answer")
    if status == HTTPStatus.UNAUTHORIZED:
        return errors.NotAuthenticated.saying(messages.TOKEN_REJECTED, words, **facts)
    if status == HTTPStatus.FORBIDDEN:
        return errors.NotAllowed.saying(messages.TOKEN_NOT_ALLOWED, words, **facts)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return errors.RateLimited.saying(messages.RATE_LIMITED, words, retry_after=answer.retry_after, **facts)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or (
        request.method == "GET" and status in _PASSING_CLIENT_ERRORS
    ):
        return errors.ServiceError.saying(messages.SERVICE_ERROR, words, retry_after=answer.retry_after, **facts)
    words |= {"names": some_names(answer.missing_inputs), "target": answer.redirect_target or _NOWHERE}
    return errors.Refused.saying(_refusal(answer), words, missing_inputs=answer.missing_inputs, **facts)


def _refusal(answer: Answer) -> messages.Message:
    """Say what a refusal needs besides the service's own words."""
    if answer.status < HTTPStatus.BAD_REQUEST:
        return messages.REDIRECTED
    if answer.missing_inputs:
        return messages.REFUSED_FOR_INPUTS
    return messages.NO_CREW if answer.status == HTTPStatus.NOT_FOUND else messages.REFUSED


def _unreadable(request: Request, answer: Answer, fault: str) -> errors.UnreadableAnswer:
    words = {"call": request.call, "fault": fault, "request": request, "status": answer.status}
    words |= {"content_type": answer.content_type, "told": answer.reason() or " It is empty."}
    facts = {"http_status": answer.status, "error": answer.reason().strip()} | request.facts
    return errors.UnreadableAnswer.saying(messages.UNREADABLE, words, **facts)


def _told(request: Request, answer: Answer) -> str:
    return f"{request} answers {answer.status}.{answer.reason()}"
