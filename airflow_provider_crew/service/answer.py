"""An answer of the service as it came over the wire, and what can be read from it whatever it is."""

from __future__ import annotations

import json
import re
import string
from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import ValidationError

from airflow_provider_crew.service.models import ErrorBody
from airflow_provider_crew.service.storable import TooManyValues, parse_json
from airflow_provider_crew.service.text import one_line

_EXCERPT = 200
_MESSAGE = 500
_HEADER = 200
_NAME = 100
_MOST_NAMES = 100
_MOST_OBJECTIONS = 5
_MOST_STEPS = 10
_MISSING_INPUTS = re.compile(r"\s*missing inputs:", re.IGNORECASE)
# A shorter secret would be found inside ordinary words.
_SHORTEST_SECRET = 8
_MASK = b"***"
# What JSON makes letters and digits of; no encoder writes them so.
_ESCAPED_LETTER = re.compile(rb"\\{1,4}u00(3\d|[46][1-9a-f]|[57][\da])", re.IGNORECASE)
_MOST_ESCAPED_LETTERS = 10_000


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
        return cls(
            status=status,
            content_type=one_line(_header(headers, "Content-Type", secrets), _HEADER),
            location=_header(headers, "Location", secrets),
            retry_after=seconds_to_wait(headers.get("Retry-After", ""), now),
            body=_without(secrets, _in_utf8(body)),
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
        return tuple(one_line(name, _NAME) for name in names[:_MOST_NAMES] if isinstance(name, str))

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
            return parse_json(_decoded(self.body.removeprefix(BOM_UTF8), "utf-8"))
        except TooManyValues as error:
            fault = str(error)
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
    steps = (
        [str(step) for step in loc[:_MOST_STEPS] if isinstance(step, str | int)] if isinstance(loc, list) else []
    )
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
    names = detail[found.end() :].split(",", _MOST_NAMES) if found else []
    return [name for name in map(str.strip, names) if name]


def _header(headers: Mapping[str, str], name: str, secrets: tuple[str, ...]) -> str:
    value = headers.get(name, "")
    return _shown_header(value, secrets) if value else ""


@lru_cache(maxsize=32)
def _shown_header(value: str, secrets: tuple[str, ...]) -> str:
    """Return a header without secrets; most answers of a service bring the same."""
    return _without(secrets, value.encode(errors="replace")).decode()


def _without(secrets: tuple[str, ...], told: bytes) -> bytes:
    """Leave secrets out; the longest first, in case that one holds another."""
    for secret in sorted(secrets, key=len, reverse=True):
        told = _without_one(secret, told)
    return told


def _without_one(secret: str, told: bytes) -> bytes:
    """Leave a secret out of what the service says. One that means to can disguise it in yet another way."""
    if len(secret) < _SHORTEST_SECRET:
        return told
    for encoded in _in_base64(secret):
        told = told.replace(encoded, _MASK)
    repeats = _repeats_of(secret)
    told = repeats.sub(_MASK, told)
    unescaped, letters = _ESCAPED_LETTER.subn(_unescaped, told, count=_MOST_ESCAPED_LETTERS)
    if letters == _MOST_ESCAPED_LETTERS:
        return _MASK
    return repeats.sub(_MASK, unescaped) if letters and repeats.search(unescaped) else told


def _unescaped(letter: re.Match[bytes]) -> bytes:
    return bytes.fromhex(letter[1].decode())


@lru_cache
def _in_base64(secret: str) -> frozenset[bytes]:
    """Return what is in base64 wherever the secret is in the text: it depends on what stands before and behind."""
    forms, content = set(), secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        encoded = b64encode(bytes(before) + content).rstrip(b"=")
        whole = encoded[(0, 2, 3)[before] : None if (before + len(content)) % 3 == 0 else -1]
        forms |= {whole, whole.translate(bytes.maketrans(b"+/", b"-_"))}
    return frozenset(forms)


@lru_cache
def _repeats_of(secret: str) -> re.Pattern[bytes]:
    """
    Return what finds the secret; prepared once, since every look needs it.

    It begins with a letter or a digit, if the secret has one: that is found many times faster.
    """
    core = secret.lstrip(string.punctuation)
    return re.compile(
        "".join(map(_forms_of, core if len(core) >= _SHORTEST_SECRET else secret)).encode("utf-8", "surrogatepass")
    )


def _forms_of(character: str) -> str:
    """Return a pattern for a character of a secret, as it stands or escaped as in JSON and in URLs."""
    if character.isascii() and character.isalnum():
        return character
    units, octets = character.encode("utf-16-be", "surrogatepass"), character.encode("utf-8", "surrogatepass")
    # Bounded, or a text full of backslashes takes for ever.
    escaped = "".join(rf"\\{{1,8}}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    in_url = "".join(f"%{octet:02x}" for octet in octets)
    return rf"(?:\\{{0,8}}{re.escape(character)}|(?i:{escaped}|{in_url}))"


def _in_utf8(body: bytes) -> bytes:
    """Bring JSON in UTF-16 or UTF-32, which is rare but read, into the one form that is searched."""
    if body[:1] == b"{" and body[1:2] != b"\0":
        return body
    encoding = json.detect_encoding(body)
    return body if encoding.startswith("utf-8") else _decoded(body, encoding).encode("utf-8", "surrogatepass")


def _decoded(body: bytes, encoding: str) -> str:
    """Decode what can be: one wrong byte in a text must not cost the whole result."""
    try:
        return body.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        return body.decode(encoding, "replace")


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
