"""
Proxies, certificates and timeouts of both clients, and the reason given for a failed exchange.

``network.txt`` has settings and variables of the environment. The line below them is what follows.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import certifi
import pytest

from airflow_provider_crew.client.errors import InvalidSettings
from airflow_provider_crew.client.settings import proxy_for, reason_for, trusted_certificates
from tests.unit.crew_builders import TOKEN, settings


def network(given: str) -> str:
    """Return the proxy and the certificates for settings, and variables of the environment."""
    fields = dict(each.split("=", 1) for each in given.split("; "))
    own: dict[str, Any] = {name: fields.pop(name) for name in ("address", "proxy", "verify") if name in fields}
    with pytest.MonkeyPatch.context() as environment:
        for name in [*os.environ]:
            if name.lower().endswith("_proxy") or name in {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
                environment.delenv(name)
        for name, value in fields.items():
            environment.setenv(name, value)
        try:
            proxy, certificates = proxy_for(settings(**own)), trusted_certificates(settings(**own))
        except InvalidSettings as error:
            assert "hunter2" not in str(error)  # noqa: PT017 - an outcome among others
            return f"! {error.event}"
    return f"proxy: {proxy}, certificates: {str(certificates).replace(certifi.where(), 'certifi')}"


def table(known: list[str]) -> Iterator[str]:
    for line in known:
        if not line.startswith("    "):
            yield line
            yield f"    {network(line)}"


def test_network_is_that_of_settings_and_environment(printed: Any) -> None:
    printed("network.txt", table)


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
