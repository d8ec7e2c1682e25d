"""What each kind of response means to each request, whichever client reads it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost, CrewError
from tests.integration.clients import Connect
from tests.integration.hostile import CALLS, Hostile, Said, answer

# A kickoff whose response names an execution, or after which work may go on, is uncertain.
RESPONSES = """
status                      | body    | kickoff              | inputs             | status
----------------------------|---------|----------------------|--------------------|-------------------
300 301 302 307 308         | {}      | Rejected             | Rejected           | Rejected
303                         | {}      | UncertainKickoff     | Rejected           | Rejected
400 402 405 407 410 413     | {}      | Rejected             | Rejected           | Rejected
422 451 498                 | {}      | Rejected             | Rejected           | Rejected
401                         | {}      | NotAuthenticated     | NotAuthenticated   | NotAuthenticated
403                         | {}      | NotAllowed           | NotAllowed         | NotAllowed
404                         | {}      | Rejected             | Rejected           | UnreadableResponse
408                         | {}      | UncertainKickoff     | ServiceError       | ServiceError
409 499                     | {}      | UncertainKickoff     | Rejected           | Rejected
425                         | {}      | Rejected             | ServiceError       | ServiceError
429                         | {}      | RateLimited          | RateLimited        | RateLimited
500 502 503 504 520 599 999 | {}      | UncertainKickoff     | ServiceError       | ServiceError
422                         | gzip {} | Rejected             | Rejected           | Rejected
300 301 302 303 307 308     | ID      | UncertainKickoff k-1 | Rejected           | Rejected
400 409 422 499             | ID      | UncertainKickoff k-1 | Rejected           | Rejected
401                         | ID      | UncertainKickoff k-1 | NotAuthenticated   | NotAuthenticated
403                         | ID      | UncertainKickoff k-1 | NotAllowed         | NotAllowed
404                         | ID      | UncertainKickoff k-1 | Rejected           | UnreadableResponse
408                         | ID      | UncertainKickoff k-1 | ServiceError       | ServiceError
429                         | ID      | UncertainKickoff k-1 | RateLimited        | RateLimited
500 502 503 504             | ID      | UncertainKickoff k-1 | ServiceError       | ServiceError
500                         | gzip ID | UncertainKickoff k-1 | ServiceError       | ServiceError
422                         | odd ID  | Rejected             | Rejected           | Rejected
200 201                     | ID      | k-1                  | UnreadableResponse | UnreadableResponse
200                         | gzip ID | k-1                  | UnreadableResponse | UnreadableResponse
200                         | running | UncertainKickoff     | UnreadableResponse | Running
200                         | inputs  | UncertainKickoff     | CrewInputs         | UnreadableResponse
200                         | error   | UncertainKickoff     | UnreadableResponse | UnreadableResponse
"""
BODIES = {
    "{}": b"{}",
    "ID": b'{"kickoff_id": "k-1"}',
    "odd ID": b'{"kickoff_id": [1]}',
    "running": b'{"status": "running"}',
    "inputs": b'{"inputs": []}',
    "error": b'{"status": "error", "message": "No database"}',
}
# Usable for nothing, although the status is 200.
USELESS = [
    *(b"", b"{}", b"[]", b'["k-1"]', b"null", b"7", b"<html>", b"[" * 100_000, b'{"kickoff_id": ""}'),
    *(b'{"kickoff_id": %b}' % each for each in (b"null", b"NaN", b"-Infinity", b"1e309", b"{}", b"[1]", b"true")),
    b'{"kickoff_id": "\\u0000"}',
]
BROKEN = {
    "nothing": b"",
    "SSH": b"SSH-2.0-OpenSSH_9\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n",
    "cut in headers": b"HTTP/1.1 200 OK\r\nContent-Len",
    "cut in body": b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"kickoff_id": "k',
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}
UNREADABLE = ["UncertainKickoff", "UnreadableResponse", "UnreadableResponse"]


def response(status: str, body: str) -> bytes:
    content, headers = BODIES[body.removeprefix("gzip ")], []
    if body.startswith("gzip"):
        content, headers = gzip.compress(content), [b"Content-Encoding: gzip"]
    return answer(content, *headers, status=f"{status} Status".encode())


def rows() -> Iterator[Any]:
    for line in RESPONSES.strip().splitlines()[2:]:
        statuses, body, *meanings = (cell.strip() for cell in line.split("|"))
        for status in statuses.split():
            yield pytest.param(response(status, body), meanings, id=f"{status} {body}")
    for useless in USELESS:
        yield pytest.param(answer(useless), UNREADABLE, id=f"200 {useless[:30]!r}")


@pytest.fixture
def meanings(connect: Connect, hostile: Hostile) -> Callable[..., list[str]]:
    """Return what a response means to each request: the class of a value or of an error, and the kickoff ID."""

    def meaning(name: str) -> str:
        try:
            value = CALLS[name](connect(hostile.url))
        except CrewError as error:
            kind = type(error).__name__
            if name == "kickoff":
                assert error.cost is (Cost.UNKNOWN if kind == "UncertainKickoff" else Cost.NONE)  # noqa: PT017
                kind = f"{kind} {getattr(error, 'kickoff_id', '')}".strip()
            return kind
        return value if isinstance(value, str) else type(value).__name__

    def told(said: Said, *, keeps: bool) -> list[str]:
        hostile.says, hostile.keeps = [said], keeps
        found = [meaning(name) for name in ("kickoff", "inputs", "status")]
        assert sum(line.startswith("POST") for line in hostile.lines) == 1
        return found

    return told


@pytest.mark.parametrize(("said", "expected"), [*rows()])
def test_response_means_the_same_to_both_clients(meanings, said, expected):
    assert meanings(said, keeps=True) == expected


@pytest.mark.parametrize("name", BROKEN)
def test_broken_response_is_no_response(meanings, name):
    # http.client takes a response that ends within its headers for one without a body.
    read = {"Unreachable", "UnreadableResponse"} if name == "cut in headers" else {"Unreachable"}

    kickoff, *reads = meanings(BROKEN[name], keeps=False)

    assert kickoff == "UncertainKickoff"
    assert {*reads} <= read
