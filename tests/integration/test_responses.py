"""
Outcome of each kind of response to each request, in both clients.

``responses.txt`` is the table of status codes. Broken, odd and endless responses follow.
"""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import groupby, product
from pathlib import Path

import pytest
from packaging.version import Version

from airflow_provider_crew.client.api import proves_nothing_was_done
from airflow_provider_crew.client.errors import (
    CallError,
    Cost,
    CrewError,
    Rejected,
    ResponseTooLarge,
    UncertainKickoff,
    Unreachable,
    UnreadableResponse,
)
from airflow_provider_crew.client.payload import KickoffRequest
from tests.integration.clients import INPUTS, Connect
from tests.integration.hostile import ACCEPTED, CALLS, Hostile, Said, Talk, answer, completed, hostile_service

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
    *(b'{"kickoff_id": "\\u0000"}', b'{"inputs": [{"name": 7}]}'),
]
UNREADABLE = ["UncertainKickoff", "UnreadableResponse", "UnreadableResponse", "taken"]


def coded(body: bytes, coding: str, status: str = "200 OK") -> bytes:
    return answer(body, b"Content-Encoding: " + coding.encode(), status=status.encode())


BROKEN = {
    "nothing": b"",
    "SSH": b"SSH-2.0-OpenSSH_9\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n",
    "cut in headers": b"HTTP/1.1 200 OK\r\nContent-Len",
    "cut in body": b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"kickoff_id": "k',
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "br": coded(b"\x0b\x02\x80abc\x03", "br"),
    "zstd": coded(b"\x28\xb5\x2f\xfd", "zstd"),
    "unknown coding": coded(b"\x0b\x02\x80abc\x03", "sdch"),
    "no gzip": coded(b"\x1f\x8b no gzip", "gzip"),
    "gzip cut off": coded(gzip.compress(ACCEPTED)[:-12], "gzip"),
    "empty gzip": coded(b"", "gzip"),
}


def response(status: str, body: str) -> bytes:
    coding, _, name = body.partition(" ")
    if coding in {"gzip", "X-GZIP"}:
        return coded(gzip.compress(BODIES[name]), coding, f"{status} Status")
    return answer(BODIES[body], status=f"{status} Status".encode())


def cost_of(call: str, error: str) -> Cost:
    """Return the cost of an error: of an execution that exists, or of one that a kickoff may have started."""
    if call in {"status", "answer"}:
        return Cost.RUNNING
    return Cost.UNKNOWN if error.startswith("UncertainKickoff") else Cost.NONE


@pytest.fixture
def meanings(connect: Connect, hostile: Hostile) -> Callable[..., list[str]]:
    """Return what a response means to each request: the class of a value or of an error, and the kickoff ID."""

    def meaning(name: str) -> str:
        try:
            value = CALLS[name](connect(hostile.url))
        except CrewError as error:
            assert error.cost is cost_of(name, type(error).__name__)  # noqa: PT017 - a meaning among others
            if name == "answer":
                is_certain = isinstance(error, CallError) and proves_nothing_was_done(error)
                return "not taken" if is_certain else "uncertain"
            named = getattr(error, "kickoff_id", "") if name == "kickoff" else ""
            return f"{type(error).__name__} {named}".strip()
        return value or "taken" if isinstance(value, str) else type(value).__name__

    def told(said: Said, *, keeps: bool) -> list[str]:
        hostile.says, hostile.keeps = [said], keeps
        found = [meaning(name) for name in ("kickoff", "inputs", "status", "answer")]
        assert [line.split()[1] for line in hostile.lines if line.startswith("POST")] == ["/kickoff", "/resume"]
        return found

    return told


def test_responses_mean_the_same_to_both_clients(meanings, hostile, printed):
    """
    A kickoff whose response names an execution, or after which work may go on, is uncertain.

    The last column is the answer of a person. ``response_to_kickoff_decides_cost`` in tests/promises shows the
    cost in each kind of task.
    """

    def meant(status: str, body: str) -> str:
        hostile.requests.clear()
        found = meanings(response(status, body), keeps=True)
        assert len(hostile.lines) == (5 if status == "404" else 4)  # nothing is repeated; a status has two paths
        return f"{found[0]:20} | {found[1]:18} | {found[2]:18} | {found[3]}"

    def make(known: list[str]) -> Iterator[str]:
        yield from known[:2]
        for line in known[2:]:
            statuses, body = (cell.strip() for cell in line.split("|")[:2])
            for meaning, alike in groupby(statuses.split(), partial(meant, body=body)):
                yield f"{' '.join(alike):19} | {body:9} | {meaning}"

    printed("responses.txt", make)


@pytest.mark.parametrize("useless", USELESS, ids=lambda useless: repr(useless[:30]))
def test_useless_response_means_nothing(meanings, hostile, useless):
    assert meanings(answer(useless), keeps=True) == UNREADABLE
    assert len(hostile.lines) == 4


@pytest.mark.parametrize("name", BROKEN)
def test_broken_response_is_no_response(meanings, name):
    kickoff, *reads, _ = meanings(BROKEN[name], keeps=False)

    assert kickoff == "UncertainKickoff"
    assert {*reads} <= {"Unreachable", "UnreadableResponse"}


LEAD_ELSEWHERE = [
    "Location: http://{host}/",
    "Location: //{host}/",
    "Refresh: 0; url=http://{host}/",
    'Alt-Svc: h2="{host}"; ma=86400, http/1.1="{host}"',
    "Proxy: http://{host}",
    'WWW-Authenticate: Digest realm="x", nonce="y", qop="auth"',
]


@pytest.mark.parametrize(("call", "status"), [*product(CALLS, [307, 401])])
def test_response_causes_no_request_elsewhere(connect, hostile, call, status):
    crew = connect(hostile.url)
    hostile.keeps = True
    with hostile_service() as elsewhere:
        elsewhere.says = [answer(completed("elsewhere"))]
        headers = [header.format(host=f"127.0.0.1:{elsewhere.port}") for header in LEAD_ELSEWHERE]
        hostile.says = [answer(b"{}", header.encode(), status=b"%d Elsewhere" % status) for header in headers]

        for _ in headers:
            with pytest.raises(CrewError):
                CALLS[call](crew)

        assert elsewhere.connections == 0
    assert len(hostile.lines) == len(headers)
    assert len(set(hostile.lines)) == 1


def test_cookies_are_not_kept(connect, hostile):
    crew = connect(hostile.url)
    hostile.keeps = True
    hostile.says = [answer(completed("x"), b"Set-Cookie: a=1; Path=/", b"Set-Cookie: a=b; Domain=127.0.0.1")]

    CALLS["status"](crew)
    CALLS["status"](crew)

    assert not any(b"cookie" in request.lower() for request in hostile.requests)


def test_unasked_response_is_not_taken_for_the_next(connect, hostile):
    hostile.keeps = True
    unasked = answer(completed("unasked"))
    hostile.says = [answer(completed("1")) + unasked, answer(completed("2")), answer(completed("3"))]
    crew = connect(hostile.url)

    assert [crew.status("some-id").output for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda talk: talk.layer.sendall(answer(status=b"413 No")), Rejected),
        (lambda talk: talk.layer.sendall(answer(ACCEPTED)), "k-1"),
        (Talk.reset, UncertainKickoff),
    ],
    ids=["413", "200", "reset"],
)
def test_response_before_the_body_was_read_counts(connect, hostile, step, expected):
    # Over TLS, requests cannot read a response that came before the body was sent.
    hostile.steps = [Talk.read_head, step]
    crew, large = connect(hostile.url), KickoffRequest.of(INPUTS | {"x": "x" * 5_000_000})

    if isinstance(expected, str):
        assert crew.kickoff(large) == expected
    else:
        with pytest.raises(expected) as caught:
            crew.kickoff(large)
        assert caught.value.cost is cost_of("kickoff", expected.__name__)


# Older ones keep all headers there are, and a line between chunks that has no end: SECURITY.md says so.
BOUNDS_HEADERS = Version(version("aiohttp")) >= Version("3.13.5")
BOUNDS_DECODERS = all(
    Version(version(name)) >= Version(least) for name, least in (("urllib3", "2.6"), ("aiohttp", "3.14"))
)
BOUNDS_CHUNK_LINES = Version(version("urllib3")) >= Version("2.8")
LIMIT = 1_000_000
FILLING = b"x" * 65536
HEADERS = b"".join(b"X-%d: y\r\n" % number for number in range(1000))
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def ever(begin: bytes, piece: bytes = FILLING) -> Callable[[], Iterable[bytes]]:
    def said() -> Iterator[bytes]:
        yield begin
        while True:
            yield piece

    return said


ENDLESS = {
    "the status line": ever(b"HTTP/1.1 200 "),
    "headers": ever(OK, HEADERS),
    "an interim answer": ever(b"HTTP/1.1 103 Early Hints\r\n", HEADERS),
    "a body": ever(OK + b"\r\n"),
    "a body with a length": ever(OK + b"Content-Length: 999999999999\r\n\r\n"),
    "small chunks": ever(CHUNKED, b"1\r\nx\r\n" * 1000),
    "the length of a chunk": ever(CHUNKED, b"0" * 65536),
    "a trailer": ever(CHUNKED + b"2\r\n{}\r\n0\r\nX: "),
}


def measured() -> Callable[[], int]:
    """Tell by how many bytes the memory of this process grows from now on, at its largest."""
    Path("/proc/self/clear_refs").write_text("5")
    began = largest_memory()
    return lambda: largest_memory() - began


def largest_memory() -> int:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


@pytest.mark.parametrize(
    ("call", "endless"), [*product(["status"], ENDLESS), *product(["kickoff"], ["headers", "a body"])]
)
def test_endless_answer_is_given_up(connect, hostile, monkeypatch, call, endless):
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_RESPONSE_BYTES", LIMIT)
    crew = connect(hostile.url, request_timeout=0.3)
    hostile.says = [ENDLESS[endless]]
    began, memory = time.thread_time(), measured()

    with pytest.raises((Unreachable, ResponseTooLarge, UnreadableResponse, UncertainKickoff)) as caught:
        CALLS[call](crew)

    assert isinstance(caught.value, UncertainKickoff) is (call == "kickoff")
    # It computes for as long as it reads. What reads headers without a bound takes its time as well.
    assert time.thread_time() - began < (3 if BOUNDS_HEADERS else 15)
    assert not (BOUNDS_HEADERS and BOUNDS_CHUNK_LINES) or memory() < 40 * LIMIT
    # On a machine with other work the deadline may be over before the request has arrived.
    assert len(hostile.requests) <= 1


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "gzip" + ", gzip" * 1000])
def test_compressed_answer_is_unpacked_within_bounds(connect, hostile, monkeypatch, encoding):
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_RESPONSE_BYTES", LIMIT)
    body = gzip.compress(b'{"status": "running", "padding": "' + b" " * 60_000_000 + b'"}', compresslevel=1)
    hostile.says = [coded(gzip.compress(body) if encoding == "gzip, gzip" else body, encoding)]
    memory = measured()

    with pytest.raises((UnreadableResponse, Unreachable, ResponseTooLarge)):
        connect(hostile.url).status("some-id")

    assert not BOUNDS_DECODERS or memory() < 40 * LIMIT
    assert b"accept-encoding: identity\r\n" in hostile.requests[0].lower()
