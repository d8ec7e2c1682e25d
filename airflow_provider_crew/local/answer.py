"""HTTP responses before they are encoded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from pydantic import JsonValue


@dataclass(frozen=True)
class Answer:
    """Response of the server to one request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self, content_length: int) -> bytes:
        """Return the status line and headers, with this content length and ``Connection: close``."""
        added = {"content-length": str(content_length), "connection": "close"}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **added}.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def json_answer(status: int, body: JsonValue, **headers: str) -> Answer:
    """Return a JSON response. It is encoded as plain ASCII, so that even half a surrogate pair can be sent."""
    encoded = json.dumps(body).encode("ascii")
    return Answer(status, encoded, {"content-type": "application/json", **headers})


def text_answer(status: int, text: str, kind: str = "plain", **headers: str) -> Answer:
    """Return a text response, or a page if ``kind`` is ``html``. Half a surrogate pair is escaped."""
    body = text.encode("utf-8", "backslashreplace")
    return Answer(status, body, {"content-type": f"text/{kind}; charset=utf-8", **headers})
