"""Settings, answers and a scripted transport for the unit tests of the client."""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from hypothesis import strategies as st

from airflow_provider_crew.client.api import Masks, Request, Response
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.client.text import maskable

TOKEN = "org/Token-0123+45=6789"
FORMS = maskable(TOKEN)
PART_OF_TOKEN = r"\borg\b|Token-"
KICKOFF_ID = "6f1d9c1e-3f0c-4f6e-9f43-2a1f6f0f9a11"
NOW = 1_750_000_000.0


def settings(**changes: Any) -> ServiceSettings:
    return ServiceSettings(**{"address": "https://crew.example", "token": TOKEN} | changes)


def answer(
    status: int = 200, body: Any = b"", headers: dict[str, str] | None = None, forms: tuple[str, ...] = FORMS
) -> Response:
    """Build an answer; a body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request("GET", "https://crew.example", "/inputs", masks=Masks(forms, forms))
    return Response(request, status, headers or {}, content)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class Script(CrewClient):
    """Client that takes the outcomes of its requests from a list, and keeps the requests."""

    def __init__(self, *outcomes: Any, **changes: Any) -> None:
        super().__init__(settings(**changes))
        self.outcomes = list(outcomes)
        self.requests: list[Request] = []

    @property
    def paths(self) -> list[str]:
        return [urlsplit(request.url).path for request in self.requests]

    def _send(self, request: Request) -> Response:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return replace(outcome, request=request)


# Whatever can come in JSON as Python reads it, even half surrogate pairs.
any_text = st.text(st.characters(exclude_categories=()), max_size=8)


def signed(data: Any, purpose: bytes = b"crew call ") -> str:
    """Return the last part of an address that a crew calls, with other data or for another purpose."""
    named = base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=")
    return f"{named.decode()}.{hmac.new(b'secret', purpose + named, 'sha256').hexdigest()}"
