"""An answer of the service as it came over the wire, and what can be read from it whatever it is."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import ValidationError

from airflow_provider_crew.service.models import ErrorBody
from airflow_provider_crew.service.text import one_line

_EXCERPT = 200
_MESSAGE = 500
_HEADER = 200
_NAME = 100
_MOST_OBJECTIONS = 5
_MISSING_INPUTS = re.compile(r"\s*missing inputs:", re.IGNORECASE)
# A shorter secret would be found inside ordinary words.
_SHORTEST_SECRET = 8
_MASK = b"***"
_ESCAPE = re.compile("%..")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as far as anything is read from it."""

    status: int
    content_type: str
    location: str
    retry_after: float | None
    body: bytes

    @classmethod
    def received(
        cls, status: int, headers: Mapping[str, str], body: bytes, *, secrets: tuple[str, ...], now: float
    ) -> Self:
        """Take what a transport delivers, without the token and other secrets, should the service repeat them."""

        def header(name: str) -> str:
            return _without(secrets, headers.get(name, "").encode(errors="replace")).decode()

        return cls(
            status=status,
            content_type=one_line(header("Content-Type"), _HEADER),
            location=header("Location"),
            retry_after=seconds_to_wait(headers.get("Retry-After", ""), now),
            body=_without(secrets, body),
        )

    @property
    def is_success(self) -> bool:
        """Whether the service did what it was asked (2xx)."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_redirect(self) -> bool:
        """Whether the service sends the client elsewhere (3xx)."""
        return HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.BAD_REQUEST

    @property
    def has_error_body(self) -> bool:
        """Whether it is the service itself that reports an error, and not something in front of it."""
        try:
            ErrorBody.model_validate(self._object_or_nothing())
        except ValidationError:
            return False
        return True

    @property
    def missing_inputs(self) -> tuple[str, ...]:
        """The names that a refused kickoff should have held."""
        body = self._object_or_nothing()
        details = body.get("details")
        missing = details.get("missing_inputs") if isinstance(details, Mapping) else None
        names = missing if isinstance(missing, list) else _names_in(body.get("detail"))
        return tuple(one_line(name, _NAME) for name in names if isinstance(name, str))

    @property
    def redirect_target(self) -> str:
        """Where a redirect leads, without the secrets that its query may hold."""
        try:
            parts = urlsplit(self.location)
        except ValueError:
            return ""
        host = parts.netloc.rpartition("@")[2]
        return one_line(urlunsplit((parts.scheme, host, parts.path, "", "")), _HEADER)

    def json_object(self) -> Mapping[str, Any]:
        """Parse the body; ValueError when it is no JSON object."""
        document = self._parse()
        if not isinstance(document, Mapping):
            raise ValueError("it is no JSON object")  # noqa: TRY004 - one kind with what is not JSON at all
        return document

    def reason(self) -> str:
        """Tell what the service itself gives as the reason, in whichever of the usual forms."""
        body = self._object_or_nothing()
        said = [_said(body.get(key)) for key in ("error", "title", "message", "detail")]
        if told := _each_once(said) or _each_once([_said(body.get("status"))]):
            return f" The service says: {one_line(': '.join(told), _MESSAGE).rstrip('. ')}."
        if self.body:
            return f" It begins: {self.excerpt()!r} ({self.content_type or 'no content type'})."
        return ""

    def excerpt(self) -> str:
        """Return the beginning of the body, fit for one line of a log."""
        return one_line(self.body[: _EXCERPT * 5].decode("utf-8", "replace"), _EXCERPT)

    def _object_or_nothing(self) -> Mapping[str, Any]:
        try:
            return self.json_object()
        except ValueError:
            return {}

    def _parse(self) -> Any:
        try:
            # One wrong byte in a text must not cost the whole result.
            return json.loads(self.body.removeprefix(BOM_UTF8).decode("utf-8", "replace"))
        except ValueError:
            fault = "it is not JSON"
        except RecursionError:
            fault = "it is nested too deeply"
        # Not raised from there: the parser's own error holds the whole body.
        raise ValueError(fault)


def _said(value: Any) -> str:
    """Return a text, or what a list of a framework's objections says: ``body.inputs: Field required``."""
    if isinstance(value, list):
        objections = [_objection(entry) for entry in value[:_MOST_OBJECTIONS]]
        return one_line("; ".join(filter(None, objections)), _MESSAGE)
    return one_line(value, _MESSAGE) if isinstance(value, str) else ""


def _objection(entry: Any) -> str:
    """Say where and what; not which value, which may be a secret."""
    objection = entry if isinstance(entry, Mapping) else {"msg": entry}
    loc, message = objection.get("loc"), objection.get("msg")
    steps = [str(step) for step in loc if isinstance(step, str | int)] if isinstance(loc, list) else []
    return ": ".join(filter(None, (".".join(steps), message if isinstance(message, str) else "")))


def _each_once(texts: list[str]) -> list[str]:
    """Leave out what says nothing, and what another text says or begins with."""
    told: list[str] = []
    for index, text in enumerate(texts):
        others = [*told, *texts[index + 1 :]]
        if text and not any(_begins_with(other, text) for other in others):
            told.append(text)
    return told


def _begins_with(text: str, words: str) -> bool:
    text, words = text.casefold(), words.casefold().rstrip(". ")
    return text.startswith(words) and not text[len(words) :][:1].isalnum()


def _names_in(detail: Any) -> list[str]:
    """Return what a deployed crew lists in a sentence: ``Missing inputs: audience, topic``."""
    found = _MISSING_INPUTS.match(detail) if isinstance(detail, str) else None
    names = detail[found.end() :].split(",") if found else []
    return [name for name in map(str.strip, names) if name]


def _without(secrets: tuple[str, ...], told: bytes) -> bytes:
    """Leave secrets out of what the service says. One that means to can disguise them in yet another way."""
    for form in _forms_of(secrets):
        told = told.replace(form, _MASK)
    return told


@lru_cache(maxsize=16)
def _forms_of(secrets: tuple[str, ...]) -> list[bytes]:
    """Return secrets as they stand, in JSON and in URLs; the longest first, in case that one holds another."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) < _SHORTEST_SECRET:
            continue
        in_json = json.dumps(secret)[1:-1]
        forms |= {secret, in_json, in_json.replace("/", r"\/")}
        for in_url in (quote(secret), quote(secret, safe="")):
            forms |= {in_url, _ESCAPE.sub(lambda escape: escape[0].lower(), in_url)}
    return [form.encode() for form in sorted(forms, key=len, reverse=True)]


def seconds_to_wait(retry_after: str, now: float) -> float | None:
    """Read a Retry-After header, seconds or a date; None when there is none that makes sense."""
    if not retry_after:
        return None
    text = retry_after.strip()
    try:
        if text.replace(".", "", 1).isdigit():
            return float(text)
        date = parsedate_to_datetime(text)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None
