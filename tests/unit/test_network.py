"""
Proxies and certificates of both clients.

``network.txt`` has settings and variables of the environment. The line below them is what follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import certifi
import pytest

from airflow_provider_crew.client.errors import InvalidSettings
from airflow_provider_crew.client.settings import proxy_for, trusted_certificates
from tests.unit.crew_builders import settings


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
