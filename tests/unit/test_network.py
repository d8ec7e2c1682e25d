from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import certifi
import pytest
import requests
import tenacity
import urllib3
from crew_builders import TOKEN, settings

from airflow_provider_crew.service.errors import (
    AnswerTooLarge,
    CallError,
    InvalidSettings,
    NotAuthenticated,
    RateLimited,
    Refused,
    ServiceError,
    TransientError,
    UncertainKickoff,
    Unreachable,
    UnreadableAnswer,
)
from airflow_provider_crew.service.network import (
    connect_timeout,
    proxy_for,
    reason_for,
    retrying,
    trusted_certificates,
)

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing about the network."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("address", "variables", "proxy"),
    [
        pytest.param("https://crew.example", {}, None, id="none"),
        pytest.param("https://crew.example", {"https_proxy": PROXY}, PROXY, id="https"),
        pytest.param("https://crew.example", {"HTTPS_PROXY": PROXY}, PROXY, id="upper case"),
        pytest.param("https://crew.example", {"http_proxy": PROXY}, None, id="for the other scheme"),
        pytest.param("http://127.0.0.1:8765", {"http_proxy": PROXY}, None, id="127.0.0.1"),
        pytest.param("http://localhost", {"http_proxy": PROXY, "all_proxy": PROXY}, None, id="localhost"),
        pytest.param("https://[::1]", {"https_proxy": PROXY}, None, id="::1"),
        pytest.param("https://crew.example", {"all_proxy": PROXY}, PROXY, id="all"),
        pytest.param(
            "https://crew.example",
            {"all_proxy": "http://x.example", "https_proxy": PROXY},
            PROXY,
            id="all, and https",
        ),
        pytest.param(
            "https://crew.example", {"https_proxy": PROXY, "no_proxy": "crew.example"}, None, id="no_proxy"
        ),
        pytest.param(
            "https://crew.example", {"https_proxy": PROXY, "no_proxy": "other.example"}, PROXY, id="no other"
        ),
        pytest.param(
            "https://a.crew.example", {"https_proxy": PROXY, "NO_PROXY": ".crew.example"}, None, id="domain"
        ),
        pytest.param("https://crew.example", {"all_proxy": PROXY, "no_proxy": "*"}, None, id="no proxy at all"),
        pytest.param("https://crew.example", {"https_proxy": "proxy.example:3128"}, PROXY, id="without scheme"),
    ],
)
def test_the_proxy_that_the_environment_names(
    environment: pytest.MonkeyPatch, address: str, variables: dict[str, str], proxy: str | None
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)

    assert proxy_for(settings(address=address)) == proxy


@pytest.mark.parametrize("address", ["https://crew.example", "http://127.0.0.1:8765"])
def test_the_proxy_in_the_settings_comes_first(environment: pytest.MonkeyPatch, address: str) -> None:
    environment.setenv("https_proxy", "http://other.example")
    environment.setenv("no_proxy", "*")

    assert proxy_for(settings(address=address, proxy=PROXY)) == PROXY


@pytest.mark.parametrize("proxy", ["socks5://me:hunter2hunter@proxy.example:1080", "http://me:hunter2hunter@"])
def test_a_proxy_in_the_environment_that_cannot_be_used_is_refused(
    environment: pytest.MonkeyPatch, proxy: str
) -> None:
    environment.setenv("https_proxy", proxy)

    with pytest.raises(InvalidSettings, match=r"https_proxy or all_proxy.*SOCKS") as caught:
        proxy_for(settings())

    assert caught.value.field == "proxy"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "verify", "certificates"),
    [
        pytest.param({}, True, certifi.where(), id="certifi's"),
        pytest.param({"CURL_CA_BUNDLE": "/curl.pem"}, True, "/curl.pem", id="curl's"),
        pytest.param(
            {"CURL_CA_BUNDLE": "/curl.pem", "REQUESTS_CA_BUNDLE": "/ca.pem"}, True, "/ca.pem", id="requests'"
        ),
        pytest.param({"REQUESTS_CA_BUNDLE": "/ca.pem"}, False, None, id="none"),
        pytest.param({"REQUESTS_CA_BUNDLE": "/ca.pem"}, __file__, __file__, id="the settings'"),
    ],
)
def test_which_certificates_are_trusted(
    environment: pytest.MonkeyPatch, variables: dict[str, str], verify: Any, certificates: str | None
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)

    assert trusted_certificates(settings(verify=verify)) == certificates


@pytest.mark.parametrize(("request_timeout", "seconds"), [(60.0, 10.0), (3.0, 3.0)])
def test_connecting_takes_no_longer_than_the_exchange(request_timeout: float, seconds: float) -> None:
    assert connect_timeout(settings(request_timeout=request_timeout)) == seconds


def attempts(error: Exception, *, only_if_not_taken: bool) -> list[float]:
    """Return for how long the policy sleeps between the attempts of a call that always fails."""
    slept: list[float] = []
    policy = tenacity.Retrying(**retrying("GET /x", only_if_not_taken=only_if_not_taken), sleep=slept.append)

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        policy(fail)

    assert caught.value is error
    return slept


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        pytest.param(RateLimited("429"), {"read", "kickoff"}, id="429"),
        pytest.param(Unreachable("no connection", sent=False), {"read", "kickoff"}, id="never sent"),
        pytest.param(Unreachable("reset", sent=True), {"read"}, id="sent"),
        pytest.param(ServiceError("503"), {"read"}, id="5xx"),
        pytest.param(UnreadableAnswer("HTML"), {"read"}, id="unreadable"),
        pytest.param(AnswerTooLarge("too large"), set(), id="too large"),
        pytest.param(NotAuthenticated("401"), set(), id="401"),
        pytest.param(Refused("400"), set(), id="400"),
        pytest.param(UncertainKickoff("502"), set(), id="uncertain"),
        pytest.param(CallError("other"), set(), id="any other"),
        pytest.param(KeyError("a defect"), set(), id="not of the service"),
    ],
)
def test_what_is_sent_again(error: Exception, repeated: set[str]) -> None:
    assert len(attempts(error, only_if_not_taken=False)) == (2 if "read" in repeated else 0)
    assert len(attempts(error, only_if_not_taken=True)) == (2 if "kickoff" in repeated else 0)


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [
        pytest.param(None, 0.0, 1.0, id="not said"),
        pytest.param(7.0, 7.0, 8.0, id="honoured"),
        pytest.param(3600.0, 30.0, 31.0, id="capped"),
        pytest.param(float("inf"), 30.0, 31.0, id="endless"),
    ],
)
def test_waits_as_the_service_asks(retry_after: float | None, least: float, most: float) -> None:
    for slept in attempts(RateLimited("429", retry_after=retry_after), only_if_not_taken=True):
        assert least <= slept <= most


def test_says_that_a_call_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    attempts(RateLimited("Too many.", retry_after=5.0), only_if_not_taken=False)

    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert all(re.match(r"Too many\. Trying GET /x again in [56]\.\d s\.", text) for text in caplog.messages)


class Repeated:
    """A call that is repeated by the policy, on a clock that goes on only while it sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        monkeypatch.setattr(tenacity, "time", SimpleNamespace(monotonic=lambda: sum(self.slept)))

    def attempt(self, *outcomes: Exception | str, kickoff: bool = False, within: float = 300.0) -> Any:
        """Let each attempt have its outcome, the last one again and again; return what comes of it."""
        waiting = list(outcomes)

        def call() -> str:
            outcome = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        policy = retrying("GET /x", only_if_not_taken=kickoff, wake_up_within=within)
        try:
            return tenacity.Retrying(**policy, sleep=self.slept.append)(call)
        except TransientError as error:
            return error


@pytest.fixture
def repeated(environment: pytest.MonkeyPatch) -> Repeated:
    return Repeated(environment)


WAKING = [
    *(pytest.param(ServiceError("5xx", http_status=status), id=str(status)) for status in (502, 503, 504)),
    pytest.param(Unreachable("no answer in time", sent=True, timed_out=True), id="no answer in time"),
    pytest.param(Unreachable("no connection in time", sent=False, timed_out=True), id="no connection in time"),
]
AWAKE = [
    *(pytest.param(ServiceError("5xx", http_status=status), id=str(status)) for status in (500, 501, 505, 599)),
    pytest.param(Unreachable("refused", sent=False), id="refused"),
    pytest.param(Unreachable("reset", sent=True), id="reset"),
    pytest.param(RateLimited("429", http_status=429), id="429"),
    pytest.param(UnreadableAnswer("HTML", http_status=200), id="unreadable"),
]


@pytest.mark.parametrize("error", WAKING)
@pytest.mark.parametrize("within", [300.0, 60.0])
def test_a_crew_that_may_be_waking_up_is_given_its_time_and_no_longer(
    repeated: Repeated, error: TransientError, within: float
) -> None:
    assert repeated.attempt(error, within=within) is error

    assert within <= sum(repeated.slept) < within + repeated.slept[-1] + 1e-6
    assert all(5 <= pause <= 10 for pause in repeated.slept)


@pytest.mark.parametrize("error", WAKING)
def test_a_crew_that_has_woken_up_answers(repeated: Repeated, error: TransientError) -> None:
    assert repeated.attempt(*[error] * 20, "awake") == "awake"

    assert len(repeated.slept) == 20


@pytest.mark.parametrize("error", AWAKE)
def test_a_crew_that_is_awake_is_asked_three_times(repeated: Repeated, error: TransientError) -> None:
    assert repeated.attempt(error) is error

    assert len(repeated.slept) == 2


@pytest.mark.parametrize("error", WAKING)
def test_without_time_to_wake_up_a_crew_is_asked_three_times(repeated: Repeated, error: TransientError) -> None:
    assert repeated.attempt(error, within=0.0) is error

    assert len(repeated.slept) == 2
    assert all(pause < 5 for pause in repeated.slept)


@pytest.mark.parametrize("error", WAKING[:4])
def test_a_kickoff_that_may_have_been_taken_wakes_nothing_up(repeated: Repeated, error: TransientError) -> None:
    for within in (0.0, 300.0):
        assert repeated.attempt(error, kickoff=True, within=within) is error

    assert repeated.slept == []


def test_a_certificate_that_is_not_accepted_is_no_crew_that_wakes_up(repeated: Repeated) -> None:
    error = Unreachable("certificate", sent=False, trusted=False, timed_out=True)

    assert repeated.attempt(error) is error
    assert repeated.slept == []


def test_a_gateway_is_not_asked_before_the_time_that_it_named(repeated: Repeated) -> None:
    repeated.attempt(ServiceError("503", http_status=503, retry_after=20.0))

    assert all(20 <= pause <= 30 for pause in repeated.slept)
    assert sum(repeated.slept) >= 300


@pytest.mark.parametrize(
    ("error", "within", "attempt", "passed", "enough"),
    [
        (ServiceError("503", http_status=503), 300.0, 1, 0.0, False),
        (ServiceError("503", http_status=503), 300.0, 50, 299.9, False),
        (ServiceError("503", http_status=503), 300.0, 1, 300.0, True),
        (ServiceError("503", http_status=503), 0.0, 2, 0.0, False),
        (ServiceError("503", http_status=503), 0.0, 3, 0.0, True),
        (ServiceError("500", http_status=500), 300.0, 2, 299.9, False),
        (ServiceError("500", http_status=500), 300.0, 3, 0.0, True),
    ],
)
def test_when_it_is_enough(error: Exception, within: float, attempt: int, passed: float, enough: Any) -> None:
    policy = retrying("GET /x", only_if_not_taken=False, wake_up_within=within)
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = attempt
    state.outcome = tenacity.Future.construct(attempt, error, has_exception=True)
    state.start_time, state.outcome_timestamp = 1000.0, 1000.0 + passed

    assert policy["retry"](state)
    assert policy["stop"](state) is enough


def test_what_fails_otherwise_while_a_crew_wakes_up_does_not_end_its_time(repeated: Repeated) -> None:
    asleep, broken = ServiceError("503", http_status=503), ServiceError("500", http_status=500)

    assert repeated.attempt(asleep, asleep, asleep, broken, broken, broken, broken, asleep, "awake") == "awake"
    assert len(repeated.slept) == 8


def test_says_that_a_crew_may_be_waking_up(repeated: Repeated, caplog: pytest.LogCaptureFixture) -> None:
    repeated.attempt(ServiceError("Bad gateway.", http_status=502), ServiceError("Broken.", http_status=500), "x")

    waking, awake = caplog.messages
    assert re.fullmatch(
        r"Bad gateway\. It may be waking up after a quiet period, and is given 5 minutes for that\. Trying GET /x "
        r"again in 5\.0 s\.",
        waking,
    )
    assert re.fullmatch(r"Broken\. Trying GET /x again in 5\.\d s\.", awake)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def from_requests(cause: Exception) -> Exception:
    """Wrap an error as urllib3 and requests do."""
    pool = urllib3.HTTPSConnectionPool("crew.example")
    wrapped = urllib3.exceptions.MaxRetryError(pool, "/inputs", urllib3.exceptions.ProtocolError("Aborted", cause))
    return requests.ConnectionError(
        wrapped, request=requests.Request(headers={"Authorization": f"Bearer {TOKEN}"})
    )


def from_aiohttp(cause: Exception) -> Exception:
    """Wrap an error as aiohttp does."""
    place: Any = SimpleNamespace(host="crew.example", port=443, ssl=True)
    return aiohttp.ClientConnectorError(place, cause if isinstance(cause, OSError) else OSError(cause))


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.verify_message = "self-signed certificate"
    return error


def tls_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL]")
    if reason is not None:
        error.reason = reason
    return error


@pytest.mark.parametrize(
    "wrap", [from_requests, from_aiohttp, lambda cause: cause], ids=["requests", "aiohttp", "raw"]
)
@pytest.mark.parametrize(
    ("cause", "words"),
    [
        pytest.param(ConnectionRefusedError(errno.ECONNREFUSED, "..."), "connection refused", id="refused"),
        pytest.param(ConnectionResetError(errno.ECONNRESET, "..."), "connection reset by peer", id="reset"),
        pytest.param(OSError(errno.ENETUNREACH, "..."), "network is unreachable", id="no network"),
        pytest.param(socket.gaierror(socket.EAI_NONAME, "..."), "its name is not known (DNS)", id="DNS"),
        pytest.param(
            certificate_error(), "its certificate is not accepted (self-signed certificate)", id="certificate"
        ),
        pytest.param(
            ssl.SSLCertVerificationError("made in Python"),
            "its certificate is not accepted (unknown reason)",
            id="certificate, without details",
        ),
        pytest.param(
            tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), "TLS failed (sslv3 alert handshake failure)", id="TLS"
        ),
        pytest.param(
            tls_error("TLSV1_ALERT_PROTOCOL_VERSION"),
            "TLS failed (tlsv1 alert protocol version); it speaks only versions of TLS older than 1.2, which are "
            "not safe",
            id="old TLS",
        ),
        pytest.param(
            tls_error("WRONG_VERSION_NUMBER"),
            "TLS failed (wrong version number); what listens there does not speak https",
            id="no TLS",
        ),
        pytest.param(tls_error(None), "TLS failed (unknown reason)", id="TLS, without details"),
    ],
)
def test_says_in_words_why_an_exchange_failed(cause: Exception, wrap: Any, words: str) -> None:
    assert reason_for(wrap(cause), connected=True, settings=settings()) == words


def raised_from(cause: Exception, error: Exception) -> Exception:
    try:
        raise error from cause
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TimeoutError("timed out"), id="raw"),
        pytest.param(from_requests(TimeoutError("timed out")), id="requests"),
        pytest.param(requests.ReadTimeout("read timed out"), id="requests' own"),
        pytest.param(aiohttp.ServerTimeoutError("timed out"), id="aiohttp's own"),
        pytest.param(raised_from(TimeoutError(), ValueError("x")), id="as cause"),
    ],
)
def test_says_which_time_ran_out(error: Exception) -> None:
    short = settings(request_timeout=2.5)

    assert reason_for(error, connected=True, settings=short) == "it was not complete after 2.5 s (request_timeout)"
    assert reason_for(error, connected=False, settings=short) == "no connection after 2.5 s"
    assert reason_for(error, connected=False, settings=settings()) == "no connection after 10 s"


def test_a_failure_without_words_is_named_and_nothing_of_it_repeated() -> None:
    password = "hunter2hunter"
    told = OSError(f"Something failed for http://me:{password}@proxy.example and Bearer {TOKEN}")

    for error in (told, from_requests(told), from_aiohttp(told), raised_from(told, ValueError(password))):
        reason = reason_for(error, connected=False, settings=settings())

        assert reason == "the connection broke off (OSError)"


def test_a_proxy_that_refuses_a_tunnel_is_said_without_its_own_words() -> None:
    told = OSError(f"Tunnel connection failed: 407 for {TOKEN}")

    for error in (told, from_requests(told)):
        reason = reason_for(error, connected=False, settings=settings())

        assert reason == "the proxy refuses to connect to it (407)"


def test_errors_that_cause_each_other_come_to_an_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first

    assert reason_for(first, connected=True, settings=settings()) == "the connection broke off (ValueError)"
