"""
Outcome of each kind of response to each request, in both clients.

``responses.txt`` is the table of status codes. Broken, odd and endless responses follow.
"""

from __future__ import annotations

import functools
import gzip
import re
import time
import tracemalloc
import zlib
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
from tests.integration.clients import INPUTS, KICKOFF, Connect
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


START_LINES = [
    *(b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 500 \xff", b"HTTP/1.1 302 Found"),
    *(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.1 99999 No", b""),
    *(b"HTTP/9.9 200 OK", b"HTTP/1.1 -1 No", b"HTTP/1.1 101 Switching", b"ICY 200 OK", b"HTTP/1.1 103 Early"),
]
FRAMINGS = [
    b"Content-Length: %d\r\n\r\n%b" % (len(ACCEPTED), ACCEPTED),
    b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(ACCEPTED), ACCEPTED),
    b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n" + ACCEPTED,
    b"Content-Length: -1\r\nContent-Length: 3\r\n\r\n" + ACCEPTED,
    b"Content-Length: 99999999999999999999\r\n\r\n" + ACCEPTED,
    b"\r\n" + ACCEPTED,
    ACCEPTED,
]


@pytest.mark.parametrize("start", START_LINES)
def test_odd_http_is_read_or_uncertain(meanings, hostile, start):
    for framing in FRAMINGS:
        hostile.requests.clear()
        kickoff, *_ = meanings(start + b"\r\n" + framing, keeps=False)

        assert kickoff.partition(" ")[0] in {"k-1", "UncertainKickoff", "Rejected"}
        assert kickoff != "Rejected" or b" 404 " in start or b" 302 " in start


LEAD_ELSEWHERE = [
    "Location: http://{host}/",
    "Location: //{host}/",
    "Location: http://127.0.0.1@{host}/",
    "Location: \\\\{host}\\",
    "Refresh: 0; url=http://{host}/",
    "Content-Location: http://{host}/",
    'Alt-Svc: h2="{host}"; ma=86400, http/1.1="{host}"',
    "Proxy: http://{host}",
    "Location: http://[bad/",
    "Location: /elsewhere",
    'WWW-Authenticate: Digest realm="x", nonce="y", qop="auth"',
]


@pytest.mark.parametrize(("call", "status"), [*product(CALLS, [307, 401, 407, 503])])
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


# Older ones keep all headers there are, a decoder for each encoding that is named, and a line between chunks that
# has no end: SECURITY.md says so.
BOUNDS_HEADERS = Version(version("aiohttp")) >= Version("3.13.5")
BOUNDS_DECODERS = Version(version("urllib3")) >= Version("2.6")
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
    "the name of a header": ever(OK),
    "a header": ever(OK + b"X: "),
    "headers": ever(OK, HEADERS),
    "an interim answer": ever(b"HTTP/1.1 103 Early Hints\r\n", HEADERS),
    "interim answers": ever(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000),
    "100 Continue": ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a body": ever(OK + b"\r\n"),
    "a body with a length": ever(OK + b"Content-Length: 999999999999\r\n\r\n"),
    "a body with a negative length": ever(OK + b"Content-Length: -1\r\n\r\n"),
    "chunks": ever(CHUNKED, b"10000\r\n" + FILLING + b"\r\n"),
    "small chunks": ever(CHUNKED, b"1\r\nx\r\n" * 1000),
    "a chunk": ever(CHUNKED + b"ffffffffffff\r\n"),
    "the length of a chunk": ever(CHUNKED, b"0" * 65536),
    "an extension of a chunk": ever(CHUNKED + b"2;"),
    "a trailer": ever(CHUNKED + b"2\r\n{}\r\n0\r\nX: "),
    "trailers": ever(CHUNKED + b"2\r\n{}\r\n0\r\n", HEADERS),
    "empty lines": ever(b"", b"\r\n" * 1000),
}


@pytest.fixture
def memory() -> Callable[[], int]:
    """Tell by how many bytes the memory of this process has grown at its largest."""
    Path("/proc/self/clear_refs").write_text("5")
    began = largest_memory()
    return lambda: largest_memory() - began


def largest_memory() -> int:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


@pytest.mark.parametrize(
    ("call", "endless"),
    [*product(["status"], ENDLESS), *product(["kickoff"], ["a header", "interim answers", "a body"])],
)
def test_endless_answer_is_given_up(connect, hostile, memory, monkeypatch, call, endless):
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_RESPONSE_BYTES", LIMIT)
    if endless in {"100 Continue", "trailers"}:
        connect.needs_one_deadline()
    crew = connect(hostile.url, request_timeout=0.3)
    hostile.says = [ENDLESS[endless]]
    began = time.thread_time()

    with pytest.raises((Unreachable, ResponseTooLarge, UnreadableResponse, UncertainKickoff)) as caught:
        CALLS[call](crew)

    assert isinstance(caught.value, UncertainKickoff) is (call == "kickoff")
    # It computes for as long as it reads. What reads headers without a bound takes its time as well.
    assert time.thread_time() - began < (3 if BOUNDS_HEADERS else 15)
    assert not (BOUNDS_HEADERS and BOUNDS_CHUNK_LINES) or memory() < 40 * LIMIT
    # On a machine with other work the deadline may be over before the request has arrived.
    assert len(hostile.requests) <= 1


def test_endless_error_is_read_in_part(connect, hostile):
    hostile.says = [ever(b"HTTP/1.1 422 No\r\n\r\n")]

    with pytest.raises(Rejected):
        connect(hostile.url).kickoff(KICKOFF)


def deflated(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


BOMBS = {
    "gzip": (b"gzip", gzip.compress),
    "gzip in gzip": (b"gzip, gzip", lambda plain: gzip.compress(gzip.compress(plain))),
    "many": (b"gzip" + b", gzip" * 1000, gzip.compress),
    "deflate": (b"deflate", deflated),
    "br": (b"br", lambda _: bytes.fromhex("5b5ff9ff0f00e4") * 100),
    "zstd": (b"zstd", lambda _: bytes.fromhex("28b52ffd") + bytes(100)),
}


@functools.cache
def packed(bomb: str) -> tuple[bytes, bytes]:
    encoding, pack = BOMBS[bomb]
    return encoding, pack(b'{"status": "running", "padding": "' + b" " * 40_000_000 + b'"}')


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("header", [b"Content-Encoding", b"Transfer-Encoding"])
def test_compressed_answer_is_unpacked_within_bounds(request, connect, hostile, monkeypatch, header, bomb):
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_RESPONSE_BYTES", LIMIT)
    encoding, body = packed(bomb)
    hostile.says = [answer(body, header + b": " + encoding)]
    request.addfinalizer(tracemalloc.stop)
    tracemalloc.start()  # it tells exactly what Python holds, and is therefore slow

    with pytest.raises((UnreadableResponse, Unreachable, ResponseTooLarge)):
        connect(hostile.url, request_timeout=30).status("some-id")

    # A fourth of what it would be unpacked: other threads of this process may need some megabytes meanwhile.
    assert tracemalloc.get_traced_memory()[1] < 10_000_000 or not BOUNDS_DECODERS
    assert b"accept-encoding: identity\r\n" in hostile.requests[0].lower()


HEAVY = {
    "tasks": b'{"status": "completed", "result": {"output": "x", "tasks": [' + b"{}," * 30_000 + b"{}]}}",
    "backslashes": b'{"status": "running", "a": "' + b"\\\\" * 150_000 + b'"}',
}


@pytest.mark.parametrize("heavy", HEAVY)
def test_json_takes_time_and_memory_of_its_text(connect, hostile, memory, heavy):
    hostile.says = [answer(HEAVY[heavy])]
    crew, began = connect(hostile.url, request_timeout=120), time.thread_time()

    assert crew.status("some-id")

    assert time.thread_time() - began < 3
    assert memory() < 20 * len(HEAVY[heavy]) + 30_000_000
