"""
Connections of Airflow, as in ``connections.txt``.

To add one, write it into the file: its fields as JSON, or a URI or a JSON text as in an environment variable. The
line below those that mean the same has the address, the token and what differs from ``USUAL``, or the error.
``network.txt`` has proxies and certificates.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import certifi
import pytest
from airflow.providers.common.compat.sdk import Connection

from airflow_provider_crew.client.errors import Cost, InvalidSettings
from airflow_provider_crew.client.settings import proxy_for, trusted_certificates
from airflow_provider_crew.hooks.connection import CrewConnection, read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from tests.unit.crew_builders import PART_OF_TOKEN, TOKEN, settings

USER_TOKEN = "user-token-9876543210"
SECRETS = re.compile(f"{PART_OF_TOKEN}|{USER_TOKEN}|secret|{{Token}}|token-0123456789")


USUAL = {"request_timeout": 60.0, "verify": True, "proxy": None, "allow_http": False, "dashboard_url": None}
USUAL |= {"max_kickoffs_per_day": None, "cancel_on_kill": False, "cancel_on_timeout": False}


def connection(**fields: Any) -> Connection:
    if isinstance(fields.get("extra"), dict):
        fields["extra"] = json.dumps(fields["extra"])
    defaults = {"conn_id": "my_crew", "conn_type": "crew", "host": "crew.example", "password": TOKEN}
    return Connection(**defaults | fields)


def found(line: str) -> CrewConnection:
    """Read a connection as Airflow does, which each version does in a place of its own."""
    if line.startswith("{"):
        return read_connection(connection(**json.loads(line)))
    if line.startswith("json "):
        line = json.dumps({"conn_type": "crew"} | json.loads(line.removeprefix("json ")))
    with patch.dict(os.environ, {"AIRFLOW_CONN_MY_CREW": line}):
        return read_connection(CrewHook.get_connection("my_crew"))


def meaning(line: str) -> str:
    try:
        read = found(line)
    except InvalidSettings as error:
        assert error.cost is Cost.NONE  # noqa: PT017 - a meaning among others
        assert not SECRETS.search(f"{error} {vars(error)}"), line  # noqa: PT017
        return re.sub(r"^Connection 'my_crew' is unusable\. ", "! ", error.event)
    assert not SECRETS.search(repr(read)), line
    tokens = {TOKEN: "organization token", USER_TOKEN: "user token"}
    token = tokens.get(read.settings.token, read.settings.token)
    told = read.settings.model_dump() | read.model_dump()
    more = {name: told[name] for name, usual in USUAL.items() if told[name] != usual}
    return f"{read.settings.address}, {token}{''.join(f', {name}={value}' for name, value in more.items())}"


def table(known: list[str]) -> Iterator[str]:
    means = ""
    for line in [*known, ""]:
        if line.startswith("    "):
            continue
        now = meaning(line) if line and line[0] != "#" else ""
        if means not in ("", now):
            yield f"    {means}"
        yield line
        means = now


def test_connections_mean_what_the_table_says(printed: Any) -> None:
    printed("connections.txt", table)


def network(given: str) -> list[str]:
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
            return ["!", error.event]
    return [str(proxy), str(certificates).replace(certifi.where(), "certifi")]


def test_network_is_that_of_settings_and_environment(tabulated: Any) -> None:
    tabulated("network.txt", 1, network)
