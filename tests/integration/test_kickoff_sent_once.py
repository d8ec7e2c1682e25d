"""
One kickoff, one request: every fault on every route.

Each cell compares the requests that arrived with the outcome at the client: an ID, not sent, or uncertain.
"""

from __future__ import annotations

import base64
import re
import ssl
from contextlib import closing
from typing import Any, NamedTuple

import pytest
import trustme

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import Cost, CrewError, RateLimited, UncertainKickoff, Unreachable
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import KICKOFF, TOKEN
from tests.integration.hostile import (
    ACCEPTED,
    Step,
    Talk,
    answer,
    garbage,
    resets,
    resets_early,
    says,
    stalls,
    tls,
    tls_with,
    tunnel,
)

NOT_SENT, UNCERTAIN, STARTED, LIMITED = "not sent", "uncertain", "started", "limited"


class Sent(NamedTuple):
    """What came of a kickoff."""

    outcome: str
    error: CrewError | None
    pauses: list[float]


def send(settings: ServiceSettings) -> Sent:
    """Send a kickoff as the hook does."""
    pauses: list[float] = []
    with closing(CrewClient(settings)) as crew:
        try:
            assert resend(lambda: crew.kickoff(KICKOFF), only_if_not_started=True, sleep=pauses.append) == "k-1"
        except CrewError as error:
            outcome = {UncertainKickoff: UNCERTAIN, RateLimited: LIMITED}.get(type(error), NOT_SENT)
            assert error.cost is (Cost.UNKNOWN if outcome == UNCERTAIN else Cost.NONE)  # noqa: PT017
            return Sent(outcome, error, pauses)
    return Sent(STARTED, None, pauses)


# As a policy may repeat what was certainly not taken.
MOST_ATTEMPTS = 3
# Where a timeout is the point. Elsewhere nothing waits for one.
SHORT = 1.0

# What stands before the proxy's host, and what the proxy must receive. RFC 7617 lets it expect either of two.
CREDENTIALS: dict[str, set[bytes | None]] = {
    "": {None},
    "user:p%2Fw12345@": {b"user:p/w12345"},
    "user:p%2fw12345@": {b"user:p/w12345"},
    "user:12345100%@": {b"user:12345100%"},
    "user:a:b12345@": {b"user:a:b12345"},
    "user:pässwörd@": {"user:pässwörd".encode(), "user:pässwörd".encode("latin-1")},
}


class Route(NamedTuple):
    """How a kickoff gets to the crew: the scheme of the proxy, and the steps of the server before the kickoff."""

    proxy: str
    steps: tuple[str, ...] = ()


ROUTES = {
    "http_direct": Route(""),
    "https_direct": Route("", ("crew_tls",)),
    "http_forward": Route("http"),
    "https_connect": Route("http", ("connect", "crew_tls")),
    "http_tlsforward": Route("https", ("proxy_tls",)),
    "https_tlsconnect": Route("https", ("proxy_tls", "connect", "crew_tls")),
}


class Case(NamedTuple):
    """
    One thing that happens to a kickoff.

    ``at``: the step in whose place it happens. ``posts``: how many kickoffs arrive. ``read``: how many of them the
    server reads to the end.
    """

    act: Any  # a step, or what is not there
    outcome: str
    posts: int = 1
    read: int | None = None
    at: str = "kickoff"
    timeout: float = 60.0


def before(at: str, act: Any, outcome: str = UNCERTAIN, **more: Any) -> Case:
    """Return a case without a kickoff. requests does not tell a failed handshake from a lost answer."""
    return Case(act, outcome, 0, at=at, **more)


CASES = {"refused": before("first", "refused", NOT_SENT), "dns": before("first", "dns", NOT_SENT)}
for step in ("proxy_tls", "crew_tls"):
    CASES |= {
        f"{step}_untrusted": before(step, "untrusted", NOT_SENT),
        f"{step}_garbage": before(step, garbage),
        f"{step}_reset": before(step, resets_early),
        f"{step}_stalls": before(step, stalls, timeout=SHORT),
    }
CASES |= {
    f"connect_{status}": before("connect", says(answer(status=b"%d No" % status))) for status in (407, 502, 503)
}
BEGUN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Len"
PARTIAL = b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"kickoff_id": "k'
CASES |= {
    "connect_reset": before("connect", resets()),
    "connect_stalls": before("connect", stalls, timeout=SHORT),
    "success": Case(says(answer(ACCEPTED)), STARTED),
    "continue": Case(says(b"HTTP/1.1 100 Continue\r\n\r\n", answer(ACCEPTED)), STARTED),
    # The bytes had left: what has not been read by one may have been read by what is behind it.
    "reset_unread": Case(resets_early, UNCERTAIN, read=0),
    "reset_read": Case(resets(), UNCERTAIN),
    "closed_read": Case(says(), UNCERTAIN),
    "reset_in_headers": Case(resets(BEGUN), UNCERTAIN),
    "closed_in_headers": Case(says(BEGUN), UNCERTAIN),
    "reset_in_body": Case(resets(PARTIAL), UNCERTAIN),
    "closed_in_body": Case(says(PARTIAL), UNCERTAIN),
    "read_timeout": Case(stalls, UNCERTAIN, timeout=SHORT),
    # A proxy that forwards says 502 to 504 as well when the crew has the request. 407 is its own refusal.
    "answer_407": Case(says(answer(status=b"407 No")), NOT_SENT),
    "answer_502": Case(says(answer(status=b"502 No")), UNCERTAIN),
    "answer_503": Case(says(answer(status=b"503 No")), UNCERTAIN),
    "answer_504": Case(says(answer(status=b"504 No")), UNCERTAIN),
    "answer_429": Case(says(answer(b"{}", b"Retry-After: 2", status=b"429 No")), LIMITED, MOST_ATTEMPTS),
}

# Other cases behave alike with any credentials, and each cell costs time.
WITH_CREDENTIALS = {"refused", "success", "reset_read", "answer_407", "answer_429", "connect_407"}


CELLS = [
    pytest.param(route, credentials, case, id=f"{name}-{credentials}-{case}")
    for name, route in ROUTES.items()
    for credentials in CREDENTIALS
    for case in CASES
    # Only what is a step of this route can fail.
    if CASES[case].at in {"first", "kickoff", *route.steps}
    and (not credentials or (route.proxy and case in WITH_CREDENTIALS))
]


@pytest.fixture(scope="module")
def contexts(authority: trustme.CA) -> list[ssl.SSLContext]:
    """What shows a certificate of a known authority, and of another."""
    return [tls_with(each.issue_cert("127.0.0.1", "crew.test")) for each in (authority, trustme.CA())]


def steps_of(route: Route, case: Case, contexts: list[ssl.SSLContext], ready: Step) -> list[Step]:
    """Return what the server does, up to what goes wrong."""
    known, unknown = contexts
    usual: dict[str, Step] = {"proxy_tls": tls(known), "connect": tunnel, "crew_tls": tls(known)}
    if case.at not in route.steps:
        return [*(usual[name] for name in route.steps), ready, case.act]
    steps = [usual[name] for name in route.steps[: route.steps.index(case.at)]]
    # Read and count what a client sends to a server it must not trust.
    return [*steps, tls(unknown), says()] if case.act == "untrusted" else [*steps, case.act]


def credentials_in(request: bytes) -> bytes | None:
    found = re.search(rb"(?i)\r\nproxy-authorization: *Basic (\S+)", request)
    return base64.b64decode(found[1]) if found else None


@pytest.mark.parametrize(("route", "credentials", "case_name"), CELLS)
def test_kickoff_is_sent_once(route, credentials, case_name, hostile, certificates, contexts):
    case, ready = CASES[case_name], list[Talk]()
    hostile.steps = [] if case.at == "first" else steps_of(route, case, contexts, ready.append)
    unusual = {"dns": "no-such-host.invalid:1", "refused": "127.0.0.1:1"}
    host = unusual.get(case.act, f"127.0.0.1:{hostile.port}")
    where = {
        "address": f"{'https' if 'crew_tls' in route.steps else 'http'}://{'crew.test' if route.proxy else host}",
        "proxy": f"{route.proxy}://{credentials}{host}" if route.proxy else None,
    }

    sent = send(
        ServiceSettings(
            token=TOKEN, verify=str(certificates[0]), request_timeout=case.timeout, allow_http=True, **where
        )
    )
    hostile.settle()

    assert sent.outcome == case.outcome
    # Each kickoff has a connection of its own, on which nothing else can have been sent.
    assert len(ready) == case.posts
    posts = [line for line in hostile.lines if line.startswith("POST ")]
    assert len(posts) == (case.posts if case.read is None else case.read)
    assert sum(request.endswith(KICKOFF.body) for request in hostile.requests) == len(posts)
    if route.proxy and (case_name == "connect_407" or posts):
        asked = [
            request for request in hostile.requests if request.startswith((b"POST http:", b"CONNECT crew.test"))
        ]
        assert asked
        assert {*map(credentials_in, asked)} <= CREDENTIALS[credentials]
        assert not [each for each in asked if each.startswith(b"CONNECT") and TOKEN.encode() in each]
    if sent.outcome == LIMITED:
        assert len(sent.pauses) == case.posts - 1
        assert min(sent.pauses) >= 2
    if case.act == "untrusted":
        assert isinstance(sent.error, Unreachable)
        assert sent.error.tls_failed
        assert not sent.pauses  # a second later, the certificate is the same
