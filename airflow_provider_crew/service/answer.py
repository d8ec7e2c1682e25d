"""An answer of the service as it came over the wire, and what can be read from it whatever it is."""

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any

from airflow_provider_crew.service.masking import forms_of, secrets_of
from airflow_provider_crew.service.text import one_line

__all__ = ["Answer", "forms_of"]

_MESSAGE = 500
_EXCERPT = 200
_NAME = 100
_MISSING_INPUTS = re.compile(r"\s*missing inputs:", re.IGNORECASE)
# More than an excerpt shows, so that no secret is cut before it is found.
_LOOKED_AT = 16 * 1024


class Answer:
    """What came back, without the token and other secrets, should the service repeat them."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, secrets: tuple[bytes, ...]) -> None:
        self.status = status
        self._headers = headers
        self._body = body
        self._secrets = secrets_of(secrets)

    @property
    def size(self) -> int:
        """How many bytes the body has."""
        return len(self._body)

    @property
    def is_success(self) -> bool:
        """Whether the service did what it was asked (2xx)."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def content_type(self) -> str:
        """What the service says that the body is."""
        return self._header("Content-Type") or "no content type"

    @property
    def redirect_target(self) -> str:
        """Where a redirect leads, without its query, which may hold a secret."""
        return re.split("[?#]", self._header("Location"), maxsplit=1)[0]

    @property
    def retry_after(self) -> float | None:
        """For how many seconds the service wants to be left alone, if it says so in seconds or with a date."""
        wanted = self._header("Retry-After")
        if wanted.isdecimal():
            return float(wanted)
        try:
            return max(0.0, parsedate_to_datetime(wanted).timestamp() - time.time())
        except (ValueError, OverflowError):
            return None

    @property
    def has_error_body(self) -> bool:
        """Whether it is the service itself that reports an error, and not something in front of it."""
        return all(isinstance(self._told.get(key), str) for key in ("error", "message"))

    @property
    def missing_inputs(self) -> tuple[str, ...]:
        """The names that a refused kickoff should have held."""
        details, detail = self._told.get("details"), self._told.get("detail")
        names = details.get("missing_inputs") if isinstance(details, Mapping) else None
        if isinstance(detail, str) and (found := _MISSING_INPUTS.match(detail)):
            # A deployed crew lists them in a sentence: ``Missing inputs: audience, topic``.
            names = detail[found.end() :].split(",")
        listed = names if isinstance(names, list) else []
        shown = (one_line(name, _NAME) for name in listed if isinstance(name, str))
        return tuple(filter(None, shown))

    def json_object(self) -> Mapping[str, Any]:
        """Return the body as a JSON object; ValueError when it is none."""
        # One wrong byte in a text must not cost the whole result.
        text = self._body.decode("utf-8-sig", "replace")
        try:
            document = json.loads(text)
        except ValueError:
            raise ValueError("it is not JSON") from None
        if not isinstance(document, dict):
            raise ValueError("it is no JSON object")  # noqa: TRY004 - one kind with what cannot be read otherwise
        # Parsed first: in bytes, a secret has as many spellings as JSON has for each of its characters.
        if self._secrets.may_be_in(text):
            self._secrets.mask(document)
        return document

    def reason(self) -> str:
        """Tell what the service itself gives as the reason, in whichever of the usual forms."""
        keys = ("status",) if "state" in self._told else ("error", "title", "message", "detail")
        said = [self._told.get(key) for key in keys]
        if told := ": ".join(text.rstrip(". ") for text in said if isinstance(text, str) and text):
            return f" The service says: {one_line(told, _MESSAGE).rstrip('. ')}."
        return f" It begins: {self.excerpt()!r} ({self.content_type})." if self._body else ""

    def excerpt(self) -> str:
        """Return the beginning of the body, fit for one line of a log."""
        beginning = self._body[:_LOOKED_AT].decode("utf-8", "replace")
        return one_line(self._secrets.masked(beginning), _EXCERPT)

    @cached_property
    def _told(self) -> Mapping[str, Any]:
        """What the service tells of an error: an object in JSON, or nothing."""
        try:
            return self.json_object()
        except (ValueError, RecursionError):
            return {}

    def _header(self, name: str) -> str:
        value = self._headers.get(name, "").encode(errors="replace").decode()
        return one_line(self._secrets.masked(value), _EXCERPT)
