"""Whatever a service answers, nothing goes anywhere but to its own address, and no answer is taken for another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_crew.client.errors import CrewError
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
    "Location: /elsewhere",
    "WWW-Authenticate: Basic realm=x",
    'WWW-Authenticate: Digest realm="x", nonce="y", qop="auth"',
    "WWW-Authenticate: Negotiate",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [201, 301, 307, 401, 407, 503])
def test_answer_causes_no_request_elsewhere(connect, hostile, elsewhere, call, status):
    headers = [header.format(host=f"127.0.0.1:{elsewhere.port}") for header in HEADERS_THAT_LEAD_ELSEWHERE]
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
    hostile.says = [
        answer(completed("x"), b"Set-Cookie: session=4711; Path=/", b"Set-Cookie: a=b; Domain=127.0.0.1"),
        answer(b'{"kickoff_id": "some-id"}', b"Set-Cookie: session=4712"),
        answer(completed("x")),
    ]

    CALLS["status"](crew)
    CALLS["kickoff"](crew)
    CALLS["status"](crew)

    assert not any(b"cookie" in request.lower() for request in hostile.requests)


UNASKED = answer(completed("unasked"))


def test_unasked_answer_is_not_taken_for_the_next(connect, hostile):
    hostile.keeps = True
    hostile.says = [answer(completed("1")) + UNASKED, answer(completed("2")), answer(completed("3"))]
    crew = connect(hostile.url)

    assert [crew.status("some-id").output for _ in range(3)] == ["1", "2", "3"]
