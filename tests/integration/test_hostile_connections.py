"""Whatever a service answers, nothing goes anywhere but to its own address, and no answer is taken for another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_crew.client.errors import (
    CrewError,
    Refused,
)
from tests.airflow_runs import eventually
from tests.integration.hostile import CALLS, Hostile, answer, completed, hostile_service


@pytest.fixture
def elsewhere() -> Iterator[Hostile]:
    with hostile_service() as running:
        running.says = [answer(completed("elsewhere"))]
        yield running


HEADERS_THAT_LEAD_ELSEWHERE = [
    "Location: http://{host}/",
    "Location: https://{host}/",
    "Location: //{host}/",
    "Location: http:{host}",
    "Location: http://127.0.0.1@{host}/",
    "Location: \\\\{host}\\",
    "Refresh: 0; url=http://{host}/",
    "Content-Location: http://{host}/",
    'Alt-Svc: h2="{host}"; ma=86400, http/1.1="{host}"',
    "Link: <http://{host}/>; rel=preload",
    "Proxy: http://{host}",
    "Location: http://[bad/",
    "WWW-Authenticate: Basic realm=x",
    'WWW-Authenticate: Digest realm="x", nonce="y", qop="auth"',
    "WWW-Authenticate: Negotiate",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [201, 300, 301, 302, 303, 305, 307, 308, 401, 407, 503])
def test_answer_causes_no_request_elsewhere(connect, hostile, elsewhere, call, status):
    headers = [header.format(host=f"127.0.0.1:{elsewhere.port}") for header in HEADERS_THAT_LEAD_ELSEWHERE]
    crew = connect(hostile.url)
    hostile.keeps = True
    hostile.says = [answer(b"{}", header.encode(), status=b"%d Elsewhere" % status) for header in headers]

    for _ in headers:
        with pytest.raises(CrewError):
            CALLS[call](crew)

    assert elsewhere.connections == 0
    assert len(hostile.requests) == len(headers)


@pytest.mark.parametrize("call", CALLS)
def test_redirect_to_same_host_is_not_followed(connect, hostile, call):
    hostile.says = [
        answer(b"", b"Location: /elsewhere", status=b"307 Elsewhere"),
        answer(b"", b"Location: %b/elsewhere" % hostile.url.encode(), status=b"308 Elsewhere"),
    ]

    for _ in hostile.says:
        with pytest.raises(Refused, match="/elsewhere"):
            CALLS[call](connect(hostile.url))

    assert "elsewhere" not in "".join(hostile.lines)
    assert len(hostile.requests) == 2


def test_cookies_are_not_kept(connect, hostile):
    crew = connect(hostile.url)
    hostile.keeps = True
    hostile.says = [
        answer(completed("x"), b"Set-Cookie: session=4711; Path=/", b"Set-Cookie: a=b; Domain=127.0.0.1"),
        answer(b'{"kickoff_id": "some-id"}', b"Set-Cookie: session=4712"),
        answer(completed("x")),
    ]

    CALLS["status"](crew)
    CALLS["kickoff"](crew)
    CALLS["status"](crew)

    assert not any(b"cookie" in request.lower() for request in hostile.requests)


@pytest.mark.parametrize(
    "switch",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n" + answer(completed("x")),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
        b"HTTP/3.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"ICY 200 OK\r\n\r\n{}",
        b"RTSP/1.0 200 OK\r\n\r\n{}",
    ],
    ids=["websocket", "h2c", "preface of HTTP/2", "settings of HTTP/2", "HTTP/3", "ICY", "RTSP"],
)
def test_other_protocol_is_not_spoken(connect, hostile, switch):
    crew = connect(hostile.url, request_timeout=1)
    hostile.says = [switch]

    with pytest.raises(CrewError):
        CALLS["status"](crew)

    # Before, a client may take the connection for one that is kept.
    eventually(lambda: hostile.closed == 1, pause=0.01)
    hostile.says = [answer(completed("two"))]
    assert CALLS["status"](crew).output == "two"
    assert all(line == "GET /status/some-id HTTP/1.1" for line in hostile.lines)


UNASKED = answer(completed("unasked"))


def test_unasked_answer_is_not_taken_for_the_next(connect, hostile):
    hostile.keeps = True
    hostile.says = [answer(completed("1")) + UNASKED, answer(completed("2")), answer(completed("3"))]
    crew = connect(hostile.url)

    assert [crew.status("some-id").output for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "begins",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: y\rContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_answer_behind_broken_framing_is_discarded(connect, hostile, begins):
    hostile.keeps = True
    hostile.says = [begins + UNASKED]
    crew = connect(hostile.url, request_timeout=0.5)

    with pytest.raises(CrewError):
        crew.status("some-id")

    hostile.says = [answer(completed("2"))]
    assert crew.status("some-id").output == "2"
