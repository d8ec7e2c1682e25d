"""Proxies, certificates and timeouts of both clients, and the reason given for a failed exchange."""

from __future__ import annotations

import errno
import os
from typing import Any

import certifi
import pytest

from airflow_provider_crew.client.errors import InvalidSettings
from airflow_provider_crew.client.settings import proxy_for, reason_for, trusted_certificates
from tests.unit.crew_builders import TOKEN, settings

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing about the network."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
            monkeypatch.delenv(name)
    return monkeypatch


CREW, INSIDE = "https://crew.example", "https://10.1.2.3:8443/team"


@pytest.mark.parametrize(
    ("address", "variables", "proxy"),
    [
        (CREW, {"https_proxy": PROXY}, PROXY),
        (CREW, {"HTTPS_PROXY": PROXY}, PROXY),
        (CREW, {"http_proxy": PROXY}, None),
        (CREW, {"all_proxy": "http://x.example", "https_proxy": PROXY}, PROXY),
        (CREW, {"https_proxy": "proxy.example:3128"}, PROXY),
        ("http://127.0.0.1:8765", {"http_proxy": PROXY}, None),
        ("http://localhost", {"http_proxy": PROXY, "all_proxy": PROXY}, None),
        ("https://[::1]", {"https_proxy": PROXY}, None),
        *((INSIDE, {"https_proxy": PROXY, "NO_PROXY": listed}, PROXY) for listed in ("fd00::/8", "")),
        *(
            (INSIDE, {"https_proxy": PROXY, "NO_PROXY": listed}, None)
            for listed in ("10.0.0.0/8", "crew.example, 10.0.0.0/8", "*")
        ),
    ],
)
def test_proxy_is_that_of_the_environment_or_of_the_settings(environment, address, variables, proxy) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)

    assert proxy_for(settings(address=address)) == proxy
    assert proxy_for(settings(address=address, proxy="http://own.example")) == "http://own.example"


@pytest.mark.parametrize("proxy", ["socks5://me:hunter2hunter@proxy.example:1080", "http://me:hunter2hunter@"])
def test_unusable_proxy_in_the_environment_is_rejected(environment: pytest.MonkeyPatch, proxy: str) -> None:
    environment.setenv("https_proxy", proxy)

    with pytest.raises(InvalidSettings, match="proxy") as caught:
        proxy_for(settings())

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "verify", "certificates"),
    [
        ({}, True, certifi.where()),
        ({"CURL_CA_BUNDLE": "/curl.pem"}, True, "/curl.pem"),
        ({"CURL_CA_BUNDLE": "/curl.pem", "REQUESTS_CA_BUNDLE": "/ca.pem"}, True, "/ca.pem"),
        ({"REQUESTS_CA_BUNDLE": "/ca.pem"}, False, None),
        ({"REQUESTS_CA_BUNDLE": "/ca.pem"}, __file__, __file__),
    ],
)
def test_trusted_certificates(
    environment: pytest.MonkeyPatch, variables: dict[str, str], verify: Any, certificates: str | None
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)

    assert trusted_certificates(settings(verify=verify)) == certificates


@pytest.mark.parametrize(("request_timeout", "seconds"), [(60.0, 10.0), (3.0, 2.7)])
def test_connect_timeout_is_below_the_request_timeout(request_timeout: float, seconds: float) -> None:
    assert settings(request_timeout=request_timeout).connect_timeout == seconds


def raised_from(cause: Exception, error: Exception) -> Exception:
    try:
        raise error from cause
    except type(error) as raised:
        return raised


def test_reason_names_the_timeout() -> None:
    short, error = settings(request_timeout=2.5), raised_from(TimeoutError("x"), ValueError("y"))

    assert "2.5 s (request_timeout)" in reason_for(error, short, sent=True)
    assert "2.25 s" in reason_for(error, short, sent=False)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("Something failed for http://me:hunter2hunter@proxy.example and Bearer {}", ["OSError"]),
        ("Tunnel connection failed: 407 for {}", ["proxy", "407"]),
    ],
)
def test_reason_has_the_class_or_the_status_only(told: str, words: list[str]) -> None:
    error = OSError(told.format(TOKEN))

    for each in (error, raised_from(error, ValueError(f"hunter2hunter {TOKEN}"))):
        reason = reason_for(each, settings(), sent=False)

        assert [word for word in words if word not in reason] == []
        assert "hunter2hunter" not in reason
        assert TOKEN not in reason


def test_circle_of_causes_is_followed_once() -> None:
    first, second = ConnectionResetError(errno.ECONNRESET, "reset"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first

    assert reason_for(first, settings(), sent=True) == os.strerror(errno.ECONNRESET).lower()
