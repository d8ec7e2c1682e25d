"""All faults of the local server. The fields of a fault are its keys in a scenario file."""

import json
import math
import time
from collections.abc import Iterator
from email.utils import formatdate
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.record import Operation

_PIECE = 64 * 1024


class _Kind(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _RequestFault(_Kind):
    """
    A fault that affects requests: one, unless ``every``, ``times`` or ``for_seconds`` is set.

    ``for_seconds`` counts from the moment you request the fault. Infinity means until it is cleared. ``every=50``
    affects each 50th request.
    """

    on: Operation | Literal["all"] = "all"
    times: int | None = Field(default=None, ge=1)
    every: int = Field(default=1, ge=1)
    for_seconds: float | None = Field(default=None, gt=0)


class AnswerFault(_RequestFault):
    """
    Send this answer instead. An error without a body gets the documented error body.

    A body of text or bytes is sent as it is, anything else as JSON. With ``after_taken`` the crew does its work
    first, so a kickoff is accepted but its answer is lost.
    """

    kind: Literal["answer"] = "answer"
    status: int = Field(ge=200, le=599)
    body: JsonValue | bytes = None
    headers: dict[str, str] = Field(default_factory=dict)
    retry_after: int | None = None
    retry_after_date: bool = False
    """Send ``Retry-After`` as an HTTP date this many seconds from now."""
    after_taken: bool = False

    @model_validator(mode="after")
    def _some_answers_have_no_body(self) -> Self:
        if self.body and self.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            raise ValueError(f"a response with status {self.status} has no body")
        if self.retry_after_date and self.retry_after is None:
            raise ValueError("retry_after_date needs retry_after")
        return self

    async def happen(self, exchange: Exchange) -> None:
        """Send the answer, after the crew has done its work if ``after_taken`` is set."""
        if self.after_taken:
            await exchange.take()
        await exchange.send(self._answer())

    def _answer(self) -> Answer:
        body, content_type = _encoded(_error_body(self.status) if self.body is None else self.body)
        headers = {"content-type": content_type} if body else {}
        if self.retry_after is not None:
            headers["retry-after"] = self._retry_after_header(self.retry_after)
        headers |= {name.lower(): value for name, value in self.headers.items()}
        return Answer(self.status, body, headers)

    def _retry_after_header(self, seconds: int) -> str:
        return formatdate(time.time() + seconds, usegmt=True) if self.retry_after_date else str(seconds)


class ResetFault(_RequestFault):
    """Reset the connection without an answer, before or after the crew has done its work."""

    kind: Literal["reset"] = "reset"
    after_taken: bool = False

    async def happen(self, exchange: Exchange) -> None:
        """Reset the connection."""
        if self.after_taken:
            await exchange.take()
        await exchange.reset()


class HangFault(_RequestFault):
    """Keep the client waiting, indefinitely or for some ``seconds`` before the answer is sent."""

    kind: Literal["hang"] = "hang"
    seconds: float | None = Field(default=None, gt=0)
    after_taken: bool = False

    async def happen(self, exchange: Exchange) -> None:
        """Wait. A client that hangs up in the meantime gets no answer."""
        answer = await exchange.take() if self.after_taken else None
        await exchange.pause(math.inf if self.seconds is None else self.seconds)
        await exchange.send(answer or await exchange.take())


class DripFault(_RequestFault):
    """Send the real response byte by byte, from the status line or only its body."""

    kind: Literal["drip"] = "drip"
    pause: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    part: Literal["all", "body"] = "all"

    async def happen(self, exchange: Exchange) -> None:
        """Send a byte, pause, and repeat."""
        answer = await exchange.take()
        exchange.request.status = answer.status
        slow = head = answer.head(len(answer.body))
        if self.part == "body":
            exchange.write(head)
            slow = b""
        for byte in slow + answer.body:
            exchange.write(bytes([byte]))
            await exchange.pause(self.pause)
        await exchange.close()


class TruncateFault(_RequestFault):
    """
    Cut the body of the real response, by default in the middle.

    By default the Content-Length fits the shortened body, so only the JSON is broken. With ``incomplete`` it is
    the original length, and the connection closes before the end of the body.
    """

    kind: Literal["truncate"] = "truncate"
    keep: int | None = Field(default=None, ge=0)
    incomplete: bool = False

    async def happen(self, exchange: Exchange) -> None:
        """Send the first bytes of the body and close."""
        answer = await exchange.take()
        exchange.request.status = answer.status
        rest = answer.body[: len(answer.body) // 2 if self.keep is None else self.keep]
        exchange.write(answer.head(len(answer.body) if self.incomplete else len(rest)) + rest)
        await exchange.close()


class HugeFault(_RequestFault):
    """Pad the real response to ``size`` bytes. It is still valid JSON, for a client that reads it all."""

    kind: Literal["huge"] = "huge"
    size: int = Field(gt=0)
    chunked: bool = False
    """Send it in chunks, so that the client cannot know the length beforehand."""

    async def happen(self, exchange: Exchange) -> None:
        """Send the answer with all the padding in its first key."""
        answer = await exchange.take()
        start, end = b'{"padding": "', b'", ' + answer.body[1:]
        padding = max(0, self.size - len(start) - len(end))
        length = None if self.chunked else len(start) + padding + len(end)
        await exchange.stream(answer, chain([start], _pieces(padding), [end]), length)


class RawFault(_RequestFault):
    """Send these bytes, which may be invalid HTTP, and close the connection."""

    kind: Literal["raw"] = "raw"
    data: bytes

    async def happen(self, exchange: Exchange) -> None:
        """Send the bytes without passing the request to the crew."""
        exchange.write(self.data)
        await exchange.close()


class RefuseFault(_Kind):
    """Refuse connections for some seconds (None: until cleared). The listening socket is really closed."""

    kind: Literal["refuse"] = "refuse"
    seconds: float | None = Field(default=None, gt=0)


RequestFault = AnswerFault | ResetFault | HangFault | DripFault | TruncateFault | HugeFault | RawFault
Fault = Annotated[RequestFault | RefuseFault, Field(discriminator="kind")]


def _pieces(total: int) -> Iterator[bytes]:
    whole, rest = divmod(total, _PIECE)
    piece = b"x" * _PIECE
    for _ in range(whole):
        yield piece
    yield piece[:rest]


def _error_body(status: int) -> JsonValue:
    if status < HTTPStatus.BAD_REQUEST:
        return ""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    return {"error": title, "message": f"The local server was asked to return {status}."}


def _encoded(body: JsonValue | bytes) -> tuple[bytes, str]:
    """Return bytes and content type. Everything but markup is labeled as JSON, including broken JSON."""
    if isinstance(body, (str, bytes)):
        raw = body.encode("utf-8") if isinstance(body, str) else body
        markup = raw.lstrip().startswith(b"<")
        return raw, "text/html; charset=utf-8" if markup else "application/json"
    return json.dumps(body).encode("ascii"), "application/json"
