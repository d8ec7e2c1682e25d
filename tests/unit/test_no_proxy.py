"""Which crews are reached without the proxy of the environment."""

from __future__ import annotations

import pytest

from airflow_provider_crew.client.settings import ServiceSettings, proxy_for

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("http_proxy", PROXY)
    return monkeypatch


def proxy_of(address: str) -> str | None:
    return proxy_for(ServiceSettings(address=address, token="token-4711", allow_http=True))


BYPASSED = [
    ("10.0.0.0/8", "https://10.1.2.3"),
    ("10.0.0.0/8", "http://10.1.2.3"),
    ("10.0.0.0/8", "https://10.255.255.255:8443/team"),
    ("crew.example, 10.0.0.0/8 ,192.168.0.0/16", "https://192.168.7.7"),
    ("10.1.2.3/32", "https://10.1.2.3"),
    ("10.9.9.9/8", "https://10.1.2.3"),  # bits of a host are set, as people write it
    ("10.1.2.3", "https://10.1.2.3"),
    ("fd12::1", "https://[fd12::1]"),
    ("crew.example", "https://crew.example"),
    (".example", "https://crew.example"),
    ("*", "https://crew.example"),
]
PROXIED = [
    ("10.0.0.0/8", "https://11.1.2.3"),
    ("10.0.0.0/8", "https://crew.example"),
    ("10.0.0.0/8", "https://10.1.2.3.example"),
    ("10.0.0.0/8", "https://[fd12::1]"),
    ("fd00::/8", "https://10.1.2.3"),
    ("fd00::/8", "https://[fe80::1]"),
    ("10.0.0.0/33", "https://10.1.2.3"),
    ("10.0.0.0/", "https://10.1.2.3"),
    ("/8", "https://10.1.2.3"),
    ("10.1.2.4/32", "https://10.1.2.3"),
    ("", "https://10.1.2.3"),
]


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize(("listed", "address"), BYPASSED)
def test_address_in_no_proxy_is_reached_directly(environment, variable, listed, address):
    environment.setenv(variable, listed)

    assert proxy_of(address) is None


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize(("listed", "address"), PROXIED)
def test_address_outside_no_proxy_is_proxied(environment, variable, listed, address):
    environment.setenv(variable, listed)

    assert proxy_of(address) == PROXY


def test_proxy_of_the_settings_ignores_no_proxy(environment):
    environment.setenv("NO_PROXY", "10.0.0.0/8")
    settings = ServiceSettings(address="https://10.1.2.3", token="token-4711", proxy="http://other.example:8080")

    assert proxy_for(settings) == "http://other.example:8080"
