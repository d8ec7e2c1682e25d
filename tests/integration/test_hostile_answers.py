"""Answers without end, or larger than they look: both clients give up in bounded time and memory."""

from __future__ import annotations

import functools
import gzip
import re
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from airflow_provider_crew.client.errors import (
    Rejected,
    ResponseTooLarge,
    UncertainKickoff,
    Unreachable,
    UnreadableResponse,
)
from tests.integration.clients import KICKOFF
from tests.integration.hostile import answer

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
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_RESPONSE_BYTES", LIMIT)


@pytest.fixture
def memory() -> Callable[[], int]:
    """Tell by how many bytes the memory of this process has grown at its largest."""
    Path("/proc/self/clear_refs").write_text("5")
    began = largest_memory()
    return lambda: largest_memory() - began


def largest_memory() -> int:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


@pytest.fixture
def python_memory() -> Iterator[Callable[[], int]]:
    """Tell how many bytes Python has held at the most: exactly, and therefore slowly."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("endless", ENDLESS)
def test_endless_answer_is_given_up(connect, hostile, memory, endless):
    if endless in {"100 Continue", "trailers"}:
        connect.needs_one_deadline()
    crew = connect(hostile.url, request_timeout=0.3)
    hostile.says = [ENDLESS[endless]]
    began = time.thread_time()

    with pytest.raises((Unreachable, ResponseTooLarge, UnreadableResponse)):
        crew.status("some-id")

    # It computes for as long as it reads. What reads headers without a bound takes its time as well.
    assert time.thread_time() - began < (3 if BOUNDS_HEADERS else 15)
    assert not (BOUNDS_HEADERS and BOUNDS_CHUNK_LINES) or memory() < 40 * LIMIT
    # On a machine with other work the deadline may be over before the request has arrived.
    assert len(hostile.requests) <= 1


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("endless", ["a header", "interim answers", "a body"])
def test_endless_answer_to_kickoff_is_uncertain(connect, hostile, endless):
    hostile.says = [ENDLESS[endless]]

    with pytest.raises(UncertainKickoff):
        connect(hostile.url, request_timeout=0.3).kickoff(KICKOFF)

    assert len(hostile.requests) == 1


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
def test_compressed_answer_is_unpacked_within_bounds(connect, hostile, python_memory, monkeypatch, header, bomb):
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_RESPONSE_BYTES", LIMIT)
    encoding, body = packed(bomb)
    tracemalloc.reset_peak()
    hostile.says = [answer(body, header + b": " + encoding)]

    with pytest.raises((UnreadableResponse, Unreachable, ResponseTooLarge)):
        connect(hostile.url, request_timeout=30).status("some-id")

    # A fourth of what it would be unpacked: other threads of this process may need some megabytes meanwhile.
    assert python_memory() < 10_000_000 or not BOUNDS_DECODERS
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
