"""
One kickoff, one request: every fault on every route.

Each cell compares the requests that arrived with the outcome at the client: an ID, not sent, or uncertain.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import Cost, CrewError, RateLimited, UncertainKickoff, Unreachable
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import KICKOFF, TOKEN
from tests.integration.sent_server import (
    ACCEPTED,
    SentServer,
    Step,
    Trust,
    answer,
    garbage,
    ready,
    resets,
    resets_unread,
    says,
    stalls,
    stalls_unread,
    tls,
    tunnel,
)

pytest_plugins = ["tests.integration.sent_fixtures"]

NOT_SENT, UNCERTAIN, STARTED, LIMITED = "not sent", "uncertain", "started", "limited"


class Sent(NamedTuple):
    """What came of a kickoff."""

    outcome: str
    error: CrewError | None
    pauses: list[float]


def send(settings: ServiceSettings) -> Sent:
    """Send a kickoff as the hook does."""
    pauses: list[float] = []
    with CrewClient(settings) as crew:
        try:
            assert resend(lambda: crew.kickoff(KICKOFF), only_if_not_started=True, sleep=pauses.append) == "k-1"
        except CrewError as error:
            is_uncertain = isinstance(error, UncertainKickoff)
            assert error.cost is (Cost.UNKNOWN if is_uncertain else Cost.NONE)  # noqa: PT017
            is_limited = isinstance(error, RateLimited)
            return Sent(UNCERTAIN if is_uncertain else LIMITED if is_limited else NOT_SENT, error, pauses)
    return Sent(STARTED, None, pauses)


# As a policy may repeat what was certainly not taken.
MOST_ATTEMPTS = 3
# Where a timeout is the point. Elsewhere nothing waits for one.
SHORT = 1.0
LONG = 60.0


class Credentials(NamedTuple):
    """What stands before the proxy's host, and what the proxy must receive."""

    written: str = ""
    expected: tuple[bytes | None, ...] = (None,)
    ipv6: bool = False


CREDENTIALS = {
    "none": Credentials(),
    "upper_escape": Credentials("user:p%2Fw@", (b"user:p/w",)),
    "lower_escape": Credentials("user:p%2fw@", (b"user:p/w",)),
    "bare_percent": Credentials("user:100%@", (b"user:100%",)),
    "colon": Credentials("user:a:b@", (b"user:a:b",)),
    # RFC 7617 lets a proxy expect either.
    "non_ascii": Credentials("user:pässwörd@", ("user:pässwörd".encode(), "user:pässwörd".encode("latin-1"))),
    "ipv6": Credentials(ipv6=True),
}


@dataclass(frozen=True)
class Route:
    """How a kickoff gets to the crew, as the steps of the server before the kickoff itself."""

    crew_tls: bool
    proxy: str = ""  # its scheme

    @property
    def tunnels(self) -> bool:
        return bool(self.proxy) and self.crew_tls

    @property
    def steps(self) -> list[str]:
        return [
            *(["proxy_tls"] if self.proxy == "https" else []),
            *(["connect"] if self.tunnels else []),
            *(["crew_tls"] if self.crew_tls else []),
        ]


ROUTES = {
    "http_direct": Route(crew_tls=False),
    "https_direct": Route(crew_tls=True),
    "http_forward": Route(crew_tls=False, proxy="http"),
    "https_connect": Route(crew_tls=True, proxy="http"),
    "http_tlsforward": Route(crew_tls=False, proxy="https"),
    "https_tlsconnect": Route(crew_tls=True, proxy="https"),
}


@dataclass(frozen=True)
class Case:
    """
    One thing that happens to a kickoff.

    ``at``: the step in whose place it happens. ``outcome``: what the client must say. ``posts``: how many kickoffs
    arrive. ``read``: how many of them the server reads to the end.
    """

    act: Any  # a step, or what is not there
    outcome: str
    posts: int
    read: int | None = None
    at: str = "kickoff"
    timeout: float = LONG
    trusted: bool | None = None


BEFORE = {
    "refused": Case("refused", NOT_SENT, 0, at="first"),
    "dns": Case("dns", NOT_SENT, 0, at="first"),
}
for step in ("proxy_tls", "crew_tls"):
    BEFORE |= {
        f"{step}_untrusted": Case("untrusted", NOT_SENT, 0, at=step, trusted=False),
        f"{step}_garbage": Case(garbage, NOT_SENT, 0, at=step),
        f"{step}_reset": Case(resets_unread, NOT_SENT, 0, at=step),
        f"{step}_stalls": Case(stalls_unread, NOT_SENT, 0, at=step, timeout=SHORT),
    }
BEFORE |= {
    f"connect_{status}": Case(says(answer(status)), NOT_SENT, 0, at="connect") for status in (407, 502, 503)
}
BEFORE |= {
    "connect_reset": Case(resets(), NOT_SENT, 0, at="connect"),
    "connect_stalls": Case(stalls, NOT_SENT, 0, at="connect", timeout=SHORT),
}

BEGUN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Len"
PARTIAL = b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"kickoff_id": "k'
ON_THE_WAY = {
    "success": Case(says(answer(200, ACCEPTED)), STARTED, 1),
    "continue": Case(says(b"HTTP/1.1 100 Continue\r\n\r\n", answer(200, ACCEPTED)), STARTED, 1),
    # The bytes had left: what has not been read by one may have been read by what is behind it.
    "reset_unread": Case(resets_unread, UNCERTAIN, 1, read=0),
    "reset_read": Case(resets(), UNCERTAIN, 1),
    "closed_read": Case(says(), UNCERTAIN, 1),
    "reset_in_headers": Case(resets(BEGUN), UNCERTAIN, 1),
    "closed_in_headers": Case(says(BEGUN), UNCERTAIN, 1),
    "reset_in_body": Case(resets(PARTIAL), UNCERTAIN, 1),
    "closed_in_body": Case(says(PARTIAL), UNCERTAIN, 1),
    "read_timeout": Case(stalls, UNCERTAIN, 1, timeout=SHORT),
    # A proxy that forwards says 502 to 504 as well when the crew has the request. 407 is its own refusal.
    "answer_407": Case(says(answer(407)), NOT_SENT, 1),
    "answer_502": Case(says(answer(502)), UNCERTAIN, 1),
    "answer_503": Case(says(answer(503)), UNCERTAIN, 1),
    "answer_504": Case(says(answer(504)), UNCERTAIN, 1),
    "answer_429": Case(says(answer(429, b"{}", "Retry-After: 2")), LIMITED, MOST_ATTEMPTS),
}
CASES = BEFORE | ON_THE_WAY

# Other cases behave alike with any credentials, and each cell costs time.
WITH_CREDENTIALS = {"refused", "success", "reset_read", "answer_407", "answer_429", "connect_407"}


def makes_sense(route: Route, credentials: str, case: str) -> bool:
    if not route.proxy and credentials != "none":
        return False  # there is no proxy that they could be for
    if case not in WITH_CREDENTIALS and credentials != "none":
        return False
    # Only what is a step of this route can fail.
    return CASES[case].at in {"first", "kickoff", *route.steps}


CELLS = [
    pytest.param(route, credentials, case, id=f"{route}-{credentials}-{case}")
    for route in ROUTES
    for credentials in CREDENTIALS
    for case in CASES
    if makes_sense(ROUTES[route], credentials, case)
]


def outcome_of(case: Case) -> str:
    """Return what the client must say. requests does not tell a failed handshake from a lost answer."""
    is_in_doubt = case.at in {"proxy_tls", "connect", "crew_tls"} and case.act != "untrusted"
    return UNCERTAIN if is_in_doubt else case.outcome


@pytest.fixture(scope="module")
def closed_ports() -> Iterator[dict[bool, int]]:
    """Ports at which nothing listens, and which nothing else gets meanwhile, by whether they are of IPv6."""
    with socket.socket() as ipv4, socket.socket(socket.AF_INET6) as ipv6:
        ipv4.bind(("127.0.0.1", 0))
        ports = {False: ipv4.getsockname()[1]}
        if socket.has_ipv6:
            ipv6.bind(("::1", 0))
            ports[True] = ipv6.getsockname()[1]
        yield ports


def address_of(
    route: Route, credentials: Credentials, case: Case, server: SentServer, closed: int
) -> dict[str, Any]:
    """Return the settings that say where the crew is, and where its proxy."""
    port = closed if case.act == "refused" else server.ipv6_port if credentials.ipv6 else server.port
    first = "no-such-host.invalid" if case.act == "dns" else "[::1]" if credentials.ipv6 else "127.0.0.1"
    crew = "https" if route.crew_tls else "http"
    if not route.proxy:
        return {"address": f"{crew}://{first}:{port}", "allow_http": True}
    proxy = f"{route.proxy}://{credentials.written}{first}:{port}"
    return {"address": f"{crew}://crew.test", "allow_http": True, "proxy": proxy}


def steps_of(route: Route, case: Case, trust: Trust) -> list[Step]:
    """Return what the server does, up to what goes wrong."""
    usual: dict[str, Step] = {"proxy_tls": tls(trust.known), "connect": tunnel, "crew_tls": tls(trust.known)}
    steps: list[Step] = []
    for name in route.steps:
        if name == case.at:
            # Read and count what a client sends to a server it must not trust.
            return [*steps, tls(trust.unknown), says()] if case.act == "untrusted" else [*steps, case.act]
        steps.append(usual[name])
    return [*steps, ready, case.act]


@pytest.mark.parametrize(("route_name", "credentials_name", "case_name"), CELLS)
def test_kickoff_is_sent_once(route_name, credentials_name, case_name, server, trust, closed_ports):
    route, credentials, case = ROUTES[route_name], CREDENTIALS[credentials_name], CASES[case_name]
    if credentials.ipv6 and server.ipv6_port is None:
        pytest.skip("there is no IPv6 here")
    arrived = server.play(*([] if case.at == "first" else steps_of(route, case, trust)))
    where = address_of(route, credentials, case, server, closed_ports[credentials.ipv6])

    sent = send(
        ServiceSettings(token=TOKEN, verify=trust.authority, request_timeout=case.timeout, **where),
    )
    server.settle()

    assert sent.outcome == outcome_of(case)
    if case.posts:
        # Each kickoff has a connection of its own, on which nothing else can have been sent.
        assert arrived.after_connect == case.posts
    read = case.posts if case.read is None else case.read
    assert len(arrived.posts) == read
    assert arrived.bodies.count(KICKOFF.body) == read
    if route.proxy and case.at in {"connect", "kickoff"} and not (case.read == 0 and not route.tunnels):
        asked = [
            given for line, given in zip(arrived.lines, arrived.credentials, strict=True) if "crew.test" in line
        ]
        assert asked
        assert all(given in credentials.expected for given in asked)
    if route.tunnels:
        assert not any(TOKEN.encode() in head for head in arrived.heads if head.startswith(b"CONNECT"))
    if sent.outcome == LIMITED:
        assert len(sent.pauses) == case.posts - 1
        assert min(sent.pauses) >= 2
    if case.trusted is not None:
        assert isinstance(sent.error, Unreachable)
        assert sent.error.trusted is case.trusted
        assert not sent.pauses  # a second later, the certificate is the same
