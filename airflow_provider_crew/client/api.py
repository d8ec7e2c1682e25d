"""Requests to a crew, and what its responses mean. There is no I/O here, so both clients behave alike."""

import logging
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, NamedTuple, Self, TypeVar, cast

from pydantic import ValidationError

from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.errors import CallError, Cost, TransientError
from airflow_provider_crew.client.models import JSON, Completed, Execution, read_execution
from airflow_provider_crew.client.payload import KickoffRequest, checked_kickoff_id, issued_kickoff_id, some_names
from airflow_provider_crew.client.settings import (
    USER_AGENT,
    ServiceSettings,
    is_caused_by,
    proxy_for,
    reason_for,
    secrets_of_proxy,
    tls_context,
)
from airflow_provider_crew.client.text import mask, mask_json, maskable, one_line

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_SUCCESS = range(200, 300)
# Error responses may be of any length, and are read only for their reason.
MAX_ERROR_BYTES = 64 * 1024

_ATTEMPTS = 3
# Maximum lengths of external text in messages.
_MAX_REASON = 500
_MAX_EXCERPT = 200
# Longer than the excerpt shown, so that a secret is found before it is cut off.
_EXCERPT_SOURCE = 16 * 1024

# Error bodies of Spring and NestJS have these besides the fields of a crew's error body.
_GATEWAY_KEYS = frozenset({"path", "statusCode", "timestamp"})
_MISSING_INPUTS = re.compile(r"\s*missing inputs:", re.IGNORECASE)


class Masks(NamedTuple):
    """
    Secrets to mask in a response.

    ``results`` has the token alone, because a webhook's password may be a word of a result. ``errors`` has all,
    for texts that only messages show: error responses, and all own texts of an execution that has not completed.
    """

    results: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request. ``kickoff_id`` names an existing execution."""

    method: str
    address: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    masks: Masks = field(default=Masks(), repr=False)
    body: bytes | None = field(default=None, repr=False)
    kickoff_id: str = ""

    @property
    def url(self) -> str:
        """URL of the request."""
        return self.address + self.path

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes for an error of this request."""
        if self.kickoff_id:
            return {"kickoff_id": self.kickoff_id, "cost": Cost.RUNNING}
        return {} if self.method == "POST" else {"cost": Cost.NONE}  # a kickoff may have started one

    def __str__(self) -> str:
        """Return the method and URL, for messages."""
        return f"{self.method} {self.url}"


class CrewApi:
    """
    Requests to one crew. Everything that depends on the settings alone is computed once.

    :param settings: Address and token of the crew.
    :param secrets: Secrets to mask in messages besides the token, such as that of the crew's webhooks.
    """

    def __init__(self, settings: ServiceSettings, secrets: Iterable[str] = ()) -> None:
        self.settings = settings
        self.proxy = proxy_for(settings)
        self.proxies = {"http": self.proxy, "https": self.proxy} if self.proxy else None
        self.tls = tls_context(settings, self.proxy)
        self._secrets = (settings.token, *secrets, *secrets_of_proxy(self.proxy))
        self._masks = Masks(maskable(settings.token), maskable(*self._secrets))
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {settings.token}",
            "User-Agent": USER_AGENT,
        }
        self.status_paths: tuple[str, ...] = ("/status/{}", "/{}/status")
        """Status paths that the crew may have. The first successful poll leaves one."""

    def inputs(self) -> Request:
        """Return the request for the inputs that the crew takes."""
        return Request("GET", self.settings.address, "/inputs", self._headers, self._masks)

    def kickoff(self, kickoff: KickoffRequest) -> Request:
        """Return the request that starts an execution."""
        headers = self._headers | {"Content-Type": "application/json"}
        masks = self._masks._replace(errors=maskable(*self._secrets, *kickoff.secrets))
        return Request("POST", self.settings.address, "/kickoff", headers, masks, kickoff.body)

    def status(self, kickoff_id: str, path: str) -> Request:
        """Return the request for the status of an execution, at one of the status paths."""
        path = path.format(checked_kickoff_id(kickoff_id))
        return Request("GET", self.settings.address, path, self._headers, self._masks, kickoff_id=kickoff_id)

    def stop(self, kickoff_id: str) -> Request:
        """Return the request that stops an execution. The endpoint is undocumented, and a crew may lack it."""
        return replace(self.status(kickoff_id, "/stop/{}"), method="POST")

    def answer(self, kickoff_id: str, answer: bytes) -> Request:
        """Return the request that answers a crew that waits for human input."""
        headers = self._headers | {"Content-Type": "application/json"}
        return Request("POST", self.settings.address, "/resume", headers, self._masks, answer, kickoff_id)


def most_bytes(status: int, largest: int | None = None) -> int:
    """Return the maximum number of bytes to read. The rest of an error response is left unread."""
    return (largest or MAX_RESPONSE_BYTES) if status in _SUCCESS else MAX_ERROR_BYTES


@dataclass(repr=False)
class Response:
    """HTTP response of the crew. Secrets, including the token, are masked if the crew repeats them."""

    request: Request
    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def received(cls, request: Request, status: int, headers: Mapping[str, str], body: bytes, most: int) -> Self:
        """Return a response. Raise ResponseTooLarge if more than ``most`` bytes were read, from most_bytes()."""
        if len(body) > most and status in _SUCCESS:
            raise errors.ResponseTooLarge(
                f"The response to {request} is larger than {most / 1024**2:g} MiB, and was not read.",
                http_status=status,
                **request.facts,
            )
        return cls(request, status, headers, body[:most])

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded (2xx)."""
        return self.status in _SUCCESS

    @property
    def is_missing(self) -> bool:
        """Whether nothing was found at the path (404)."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def content_type(self) -> str:
        """Content type of the body, as declared by the crew."""
        return self._header("Content-Type") or "no content type"

    @property
    def has_error_body(self) -> bool:
        """Whether the error was reported by the crew itself rather than by a gateway in front of it."""
        body = self._error_body
        return _GATEWAY_KEYS.isdisjoint(body) and all(
            isinstance(body.get(key), str) for key in ("error", "message")
        )

    @property
    def missing_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that a rejected kickoff lacks."""
        details, detail = self._error_body.get("details"), self._error_body.get("detail")
        names = details.get("missing_inputs") if isinstance(details, Mapping) else None
        if isinstance(detail, str) and (found := _MISSING_INPUTS.match(detail)):
            # A deployed crew lists them in a sentence: ``Missing inputs: audience, topic``.
            names = detail[found.end() :].split(",")
        listed = names if isinstance(names, list) else []
        return tuple(filter(None, (one_line(name, _MAX_EXCERPT) for name in listed if isinstance(name, str))))

    @property
    def given_id(self) -> Any:
        """Value of the body's kickoff ID, whatever the HTTP status. It may be malformed."""
        return self._error_body.get("kickoff_id")

    @property
    def named_execution(self) -> str:
        """Kickoff ID in the body, whatever the HTTP status. Empty if it is missing or malformed."""
        with suppress(ValueError):
            return issued_kickoff_id(self.given_id)
        return ""

    def read(self, reader: Callable[[Mapping[str, Any]], T]) -> T:
        """Return what the reader makes of the body, or raise the error of the response."""
        if not self.is_success:
            raise self.error()
        try:
            return reader(self._json_object(self.request.masks.results, in_result=True))
        except ValidationError:
            fault = "a field has an unexpected type"
        except RecursionError:
            fault = "it is nested too deeply"
        except ValueError as error:
            fault = str(error)
        raise self._unreadable(fault)

    def kickoff_id(self) -> str:
        """Return the kickoff ID of the execution that the request has started."""
        return self.read(lambda body: issued_kickoff_id(body.get("kickoff_id")))

    def execution(self) -> Execution:
        """Return the execution that the request asks for."""
        found = self.read(lambda body: read_execution(body, self.request.kickoff_id))
        if found is None:
            raise self.not_found()
        if not isinstance(found, Completed):
            masks = self.request.masks.errors
            texts = {name: mask(text, masks) for name, text in found if isinstance(text, str)}
            return found.model_copy(update=texts | {"kickoff_id": found.kickoff_id})
        return found

    def not_found(self) -> CallError:
        """Return the error for an execution that is unknown to the crew."""
        if not (self.is_success or self.has_error_body):
            # A gateway without the crew behind it also returns 404, while the execution keeps running.
            return self._unreadable("it does not come from the crew")
        return errors.ExecutionNotFound(
            f"The execution is unknown to the crew: {self._described()}",
            http_status=self.status,
            kickoff_id=self.request.kickoff_id,
            address=self.request.address,
        )

    def error(self) -> CallError:
        """Return the error of a response without success."""
        status = self.status
        if status < HTTPStatus.OK:  # such as 102 and 103: the work may be in progress
            return self._unreadable("it is not a final response")
        facts: dict[str, Any] = {"http_status": status, "error": self.reason().strip()} | self.request.facts
        kind: type[CallError]
        if status in _ERRORS:
            kind, event = _ERRORS[status]
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR or (
            self.request.method == "GET" and status in _PASSING_CLIENT_ERRORS
        ):
            kind, event = errors.ServiceError, "The server failed:"
        else:
            kind, event = errors.Rejected, self._rejection()
            facts["missing_inputs"] = self.missing_inputs
        if issubclass(kind, TransientError):
            facts["retry_after"] = self._retry_after
        return kind(f"{event} {self._described()}", **facts)

    def reason(self) -> str:
        """Return the reason given by the crew, or else the beginning of the body."""
        is_status = "state" in self._error_body
        keys = ("status",) if is_status else ("error", "title", "message", "detail")
        given = [self._error_body.get(key) for key in keys]
        if reason := ": ".join(text.rstrip(". ") for text in given if isinstance(text, str) and text):
            speaker = "crew" if is_status or self.has_error_body else "response"
            return f" The {speaker} says: {one_line(reason, _MAX_REASON).rstrip('. ')}."
        # JSON of a status that a gateway has cut off or encoded twice may hold an output, which no log may show.
        is_shown = self.status >= HTTPStatus.MULTIPLE_CHOICES or not self.body.lstrip().startswith(
            (b"{", b"[", b'"')
        )
        return f" It begins: {self.excerpt()!r} ({self.content_type})." if self.body and is_shown else ""

    def excerpt(self) -> str:
        """Return the beginning of the body, on one line."""
        beginning = self.body[:_EXCERPT_SOURCE].decode("utf-8", "replace")
        return one_line(mask(beginning, self.request.masks.errors), _MAX_EXCERPT)

    @cached_property
    def _error_body(self) -> Mapping[str, Any]:
        """The error as a JSON object. Empty if the body is anything else."""
        try:
            return self._json_object(self.request.masks.errors, in_result=False)
        except (ValueError, RecursionError):
            return {}

    def _json_object(self, masks: tuple[str, ...], *, in_result: bool) -> Mapping[str, Any]:
        """Return the body as a JSON object without secrets. Raise ValueError for anything else."""
        # Replace invalid bytes, so that one of them does not cost the whole result.
        text = self.body.decode(errors="replace").removeprefix("\ufeff")
        try:
            document = JSON.decode(text)
        except ValueError:
            raise ValueError("it is not JSON") from None
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")  # noqa: TRY004 - callers handle all unreadable bodies alike
        # Skip the walk through a large body unless it holds a secret, or escapes that may spell one.
        if any(part in text for part in ("\\", "%", "&", *masks)):
            document = mask_json(document, partial(mask, secrets=masks, in_result=in_result))
        return cast("Mapping[str, Any]", document)

    def _header(self, name: str) -> str:
        value = self.headers.get(name, "").encode(errors="replace").decode()
        return one_line(mask(value, self.request.masks.errors), _MAX_EXCERPT)

    @property
    def _retry_after(self) -> float | None:
        wanted = self._header("Retry-After")
        if wanted.isdecimal():
            return float(wanted)
        with suppress(ValueError, OverflowError):
            return max(0.0, parsedate_to_datetime(wanted).timestamp() - time.time())
        return None

    def _rejection(self) -> str:
        if self.status < HTTPStatus.BAD_REQUEST:
            # Without its query string, which may hold a secret
            target = re.split("[?#]", self._header("Location"), maxsplit=1)[0] or "an unnamed address"
            return f"The crew redirects to {target}, and redirects are not followed:"
        if self.missing_inputs:
            return f"Inputs are missing: {some_names(self.missing_inputs)}."
        if self.request.kickoff_id and self.status in {404, 405}:
            return "The deployment may lack this endpoint:"
        return "There is no crew at this address:" if self.is_missing else "The crew rejected the request:"

    def _unreadable(self, fault: str) -> errors.UnreadableResponse:
        reason = self.reason() or " It is empty."
        return errors.UnreadableResponse(
            f"The response to {self.request} is unreadable: {fault}. It has HTTP status {self.status} and "
            f"{self.content_type}.{reason}",
            http_status=self.status,
            **self.request.facts | {"error": self.reason().strip()},
        )

    def _described(self) -> str:
        return f"{self.request} returned {self.status}.{self.reason()}"


# Statuses of one meaning.
_ERRORS: dict[int, tuple[type[CallError], str]] = {
    401: (errors.NotAuthenticated, "The crew rejected the token:"),
    403: (errors.NotAllowed, "The token is not allowed to do this:"),
    429: (errors.RateLimited, "The crew limits the rate of requests:"),
}
# A load balancer that closes an idle connection returns 408 to the next request on it.
_PASSING_CLIENT_ERRORS = frozenset({408, 425})
# A gateway may return these after it has forwarded the request: Found, See Other, Request Timeout, Conflict, and
# Client Closed Request.
_UNCERTAIN_REJECTIONS = frozenset({302, 303, 408, 409, 499})


def unreachable(request: Request, crew: CrewApi, error: BaseException, *, sent: bool) -> errors.Unreachable:
    """Return the error for a request without a response."""
    reason = reason_for(error, crew.settings, sent=sent)
    flaws = {"tls_failed": is_caused_by(error, ssl.SSLError), "timed_out": is_caused_by(error, TimeoutError)}
    facts = {"sent": sent, **flaws, **request.facts}
    event = f"No complete response to {request}: {reason}."
    if not sent:
        problem = "not trusted" if is_caused_by(error, ssl.SSLCertVerificationError) else "unreachable"
        # Without the user and the password
        proxy = f" through the proxy {crew.proxy.split('://')[-1].rpartition('@')[2]}" if crew.proxy else ""
        event = f"The crew is {problem} at {crew.settings.address}{proxy}: {reason}. {request} was not sent."
        facts = {"cost": Cost.NONE} | facts
    return errors.Unreachable(event, **facts)


def unknown_at_all_paths(failures: Sequence[CallError]) -> CallError:
    """Return the error for an execution with a 404 at each status path. That of the crew itself counts most."""
    return next((each for each in failures if isinstance(each, errors.ExecutionNotFound)), failures[-1])


def after_kickoff(error: CallError, response: Response | None) -> CallError | errors.UncertainKickoff:
    """
    Return the error for a kickoff whose response has no usable kickoff ID, or that has no response.

    Every outcome is an uncertain kickoff, unless it proves that no execution started.
    """
    if response and (given := response.given_id) not in (None, ""):
        shown = one_line(repr(given), _MAX_EXCERPT)
        event = f"The kickoff has probably started an execution, whose ID is {shown}. {error.event}"
        return errors.UncertainKickoff(event, kickoff_id=response.named_execution)
    if proves_nothing_was_done(error):
        return error
    return errors.UncertainKickoff(f"The kickoff may have started an execution. {error.event}")


def proves_nothing_was_done(error: CallError) -> bool:
    """Whether the outcome of a kickoff or an answer proves that it had no effect. Defaults to False in doubt."""
    if isinstance(error, errors.Unreachable):
        return not error.sent
    if isinstance(error, errors.Rejected):
        return error.http_status not in _UNCERTAIN_REJECTIONS
    return isinstance(error, errors.NotAuthenticated | errors.NotAllowed | errors.RateLimited)


def resend(
    call: Callable[[], T],
    *,
    only_if_not_started: bool = False,
    wake_up_within: float = 0.0,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """
    Return the result of a call. After a transient failure, repeat the call up to two times.

    :param only_if_not_started: Whether to repeat only what certainly started nothing. A kickoff needs this.
    :param wake_up_within: Seconds to repeat the call instead, if the crew may be waking up after a quiet period.
        While it wakes up, other failures count as part of the startup.
    """
    until, is_waking, attempt = time.monotonic() + wake_up_within, False, 1
    while True:
        try:
            return call()
        except TransientError as error:
            if isinstance(error, errors.Unreachable) and error.tls_failed and not error.sent:
                raise  # a certificate error persists, and should be reported at once
            is_waking = is_waking or (wake_up_within > 0 and error.may_be_waking_up)
            is_over = time.monotonic() >= until if is_waking else attempt >= _ATTEMPTS
            if is_over or (only_if_not_started and not proves_nothing_was_done(error)):
                raise
            # Add the jitter to Retry-After, or all clients that received the same value would return together.
            longest = min(2 ** (attempt - 2), timing.LONGEST_BACK_OFF)
            pause = min(error.retry_after or 0.0, timing.LONGEST_RETRY_AFTER)
            pause += random.uniform(0.0, longest)  # noqa: S311 - not a secret
            pause = max(pause, timing.WAKING_PAUSE if is_waking else 0.0)
            why = f", as the crew may need up to {wake_up_within / 60:.0f} minutes to start" if is_waking else ""
            log.warning("%s Retrying in %.1f s%s.", error.event, pause, why)
        sleep(pause)
        attempt += 1
