"""A whole HTTP answer, before it becomes bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from pydantic import JsonValue


@dataclass(frozen=True)
class Answer:
    """What the service says to one request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self, content_length: int) -> bytes:
        """Return status line and headers, announcing a body of this length and the end of the connection."""
        added = {"content-length": str(content_length), "connection": "close"}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **added}.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def json_answer(status: int, body: JsonValue, **headers: str) -> Answer:
    """Encode with plain ASCII, so that even half a surrogate pair can be put out."""
    encoded = json.dumps(body).encode("ascii")
    return Answer(status, encoded, {"content-type": "application/json", **headers})


def text_answer(status: int, text: str, kind: str = "plain") -> Answer:
    """Answer with a text, or with a page if its kind is ``html``. Half a surrogate pair becomes its escape."""
    body = text.encode("utf-8", "backslashreplace")
    return Answer(status, body, {"content-type": f"text/{kind}; charset=utf-8"})
