"""
Outcome of each kind of response to each request, in both clients.

``responses.txt`` is the table of status codes. Broken bodies, odd HTTP and redirects follow.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, product

import pytest

from airflow_provider_crew.client.api import proves_nothing_was_done
from airflow_provider_crew.client.errors import CallError, Cost, CrewError, Rejected, UncertainKickoff
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


@pytest.fixture
def elsewhere() -> Iterator[Hostile]:
    with hostile_service() as running:
        running.says = [answer(completed("elsewhere"))]
        yield running


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
def test_response_causes_no_request_elsewhere(connect, hostile, elsewhere, call, status):
    headers = [header.format(host=f"127.0.0.1:{elsewhere.port}") for header in LEAD_ELSEWHERE]
    crew = connect(hostile.url)
    hostile.keeps = True
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
