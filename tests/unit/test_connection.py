"""Reading the settings of the client from an Airflow connection."""

from __future__ import annotations

import json
import os
import re
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.sdk import Connection

from airflow_provider_crew.client.errors import Cost, InvalidSettings
from airflow_provider_crew.hooks.connection import load_secret, read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from tests.unit.crew_builders import PART_OF_TOKEN, TOKEN

USER_TOKEN = "user-token-9876543210"
QUOTED_TOKEN = "org%2FToken-0123%2B45%3D6789"


def connection(**fields: Any) -> Connection:
    defaults = {"conn_id": "my_crew", "conn_type": "crew", "host": "crew.example", "password": TOKEN}
    if isinstance(fields.get("extra"), dict):
        fields["extra"] = json.dumps(fields["extra"])
    return Connection(**defaults | fields)


def from_environment(value: str) -> Connection:
    """Read a connection as Airflow does, which each version does in a place of its own."""
    with patch.dict(os.environ, {"AIRFLOW_CONN_MY_CREW": value}):
        return CrewHook.get_connection("my_crew")


def from_json(**fields: Any) -> Connection:
    return from_environment(json.dumps({"conn_type": "crew"} | fields))


def address_of(connection: Connection) -> str:
    return read_connection(connection).settings.address


def fault_of(connection: Connection, **options: Any) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as caught:
        read_connection(connection, **options)
    assert caught.value.event.startswith("Connection 'my_crew' is unusable. ")
    assert "my_crew" in str(caught.value)
    return caught.value


EVERY_FIELD = {
    "user_bearer_token": USER_TOKEN,
    "token_type": "user",
    "request_timeout": 30,
    "verify": False,
    "proxy": "proxy.example:3128",
    "dashboard_url": "https://app.example/crews/7",
    "allow_http": True,
}


@pytest.mark.parametrize(
    "alike",
    [
        [
            connection(),
            connection(host=" crew.example/ ", schema="https", extra="{}"),
            from_environment(f"crew://:{QUOTED_TOKEN}@crew.example"),
            from_environment(f"crew://https://:{QUOTED_TOKEN}@crew.example/"),
            from_environment(f"crew://:{QUOTED_TOKEN}@crew.example/https"),
            from_json(host="crew.example", password=TOKEN),
        ],
        [
            connection(host="https://crew.example:8443/team/a"),
            connection(host="https://crew.example/team", port=8443, schema="a"),
            from_environment(f"crew://:{QUOTED_TOKEN}@crew.example:8443/team%2Fa"),
            from_json(host="crew.example", port="8443", schema="team/a", password=TOKEN),
        ],
        [
            connection(host="http://[::1]:8765"),
            connection(host="::1", port=8765, schema="HTTP"),
            from_environment(f"crew://:{QUOTED_TOKEN}@[::1]:8765/http"),
            from_json(host="::1", port=8765, schema="http", password=TOKEN),
        ],
        [
            connection(password="", extra=EVERY_FIELD | {"unknown": "ignored"}),
            from_environment(f"crew://crew.example/?{urlencode(EVERY_FIELD)}"),
        ],
    ],
    ids=["address and token", "port and prefix", "IPv6", "every extra field"],
)
def test_form_uri_and_json_are_equivalent(alike: list[Connection]) -> None:
    first, *others = [read_connection(each) for each in alike]

    for other in others:
        assert (other.settings, other.dashboard_url) == (first.settings, first.dashboard_url)


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("https://app.example/runs/{kickoff_id}", "https://app.example/runs/a%2Fb%20%C3%A9%2E"),
        ("https://app.example?run={kickoff_id}#{kickoff_id}", "https://app.example/?run=ID#ID"),
        ("https://app.example/crews/7", "https://app.example/crews/7"),
    ],
)
def test_dashboard_url_may_have_the_kickoff_id(address: str, page: str) -> None:
    read = read_connection(connection(extra={"dashboard_url": address}))

    assert read.page_of("a/b é.") == page.replace("ID", "a%2Fb%20%C3%A9%2E")


def test_empty_form_fields_are_not_set() -> None:
    names = "user_bearer_token token_type request_timeout verify proxy dashboard_url allow_http"
    names += " max_kickoffs_per_day"
    plain = read_connection(connection())

    for nothing in ("", None):
        assert read_connection(connection(extra=dict.fromkeys(names.split(), nothing))) == plain
    assert plain.settings.verify is True
    assert plain.dashboard_url is None
    assert plain.max_kickoffs_per_day is None


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "crew.example:", "port": 8443}, "https://crew.example:8443"),
        ({"host": "http://localhost", "schema": "http"}, "http://localhost"),
        ({"host": "http://localhost", "schema": "https"}, "http://localhost"),
    ],
)
def test_address_is_built_from_the_fields(fields: dict[str, Any], address: str) -> None:
    assert address_of(connection(**fields)) == address


@pytest.mark.parametrize(
    "fields",
    [
        {"host": None},
        {"host": "crew.example:1", "port": 2},
        {"host": "crew.example", "schema": "http"},
        {"host": f"crew.example:{TOKEN}", "port": 443},
        {"host": f"https://{TOKEN}@crew.example"},
    ],
)
def test_unusable_address_fields_are_rejected(fields: dict[str, Any]) -> None:
    assert not re.search(PART_OF_TOKEN, str(fault_of(connection(**fields))))


@pytest.mark.parametrize(
    ("organization", "user", "in_extra", "asked_for", "chosen"),
    [
        (TOKEN, None, None, None, "organization"),
        (None, USER_TOKEN, None, None, "user"),
        (TOKEN, USER_TOKEN, None, None, "organization"),
        (TOKEN, USER_TOKEN, "user", None, "user"),
        (TOKEN, USER_TOKEN, None, "user", "user"),
        (TOKEN, USER_TOKEN, "user", "organization", "organization"),
    ],
)
def test_token_type_selects_the_token(
    organization: str | None, user: str | None, in_extra: str | None, asked_for: str | None, chosen: str
) -> None:
    extra = {"user_bearer_token": user, "token_type": in_extra}
    read = read_connection(connection(password=organization, extra=extra), token_type=asked_for)

    assert read.settings.token == {"organization": TOKEN, "user": USER_TOKEN}[chosen]


@pytest.mark.parametrize(
    ("fields", "asked_for"),
    [
        ({"password": None}, None),
        ({}, "user"),
        ({"password": None, "extra": {"user_bearer_token": USER_TOKEN}}, "organization"),
        ({"password": None, "login": TOKEN}, None),
        ({"password": 4711}, None),
        ({"password": None, "extra": {"user_bearer_token": f"Bearer {TOKEN}"}}, None),
    ],
)
def test_missing_or_invalid_token_is_rejected(fields: dict[str, Any], asked_for: str | None) -> None:
    error = fault_of(connection(**fields), token_type=asked_for)

    assert error.cost is Cost.NONE
    assert TOKEN not in str(error)


@pytest.mark.parametrize("extra", ["[1]", "{", "[" * 100_000], ids=["list", "broken", "deep"])
def test_extra_that_is_no_object_is_rejected(extra: str) -> None:
    assert "extra" in str(fault_of(connection(extra=extra)))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("user_bearer_token", [7, ["secret"], {"is": "secret"}]),
        ("token_type", ["secret", "Organization", 7]),
        ("request_timeout", ["secret", "soon", [30], 0, -1, "-5", "nan", "inf", 86_401]),
        ("verify", [7, ["secret"], {"is": "secret"}]),
        ("proxy", [7, ["secret"], "socks5://me:secret@proxy.example", "http://me:secret@"]),
        ("dashboard_url", ["secret", "app.example/crews/7", "ftp://me:secret@app.example", 7]),
        ("dashboard_url", ["javascript:alert(1)", "JAVASCRIPT://app.example/%0aalert(1)", "data:text/html,x"]),
        (
            "dashboard_url",
            [
                "https\n://pages.example/9",
                "vbscript:x",
                "file:///etc/passwd",
                "//app.example",
                "https://",
                "\x01javascript:x",
            ],
        ),
        ("dashboard_url", ["https://app.example/{secret}", "https://app.example/{}", "https://{kickoff_id}/"]),
        ("allow_http", ["secret", 7, []]),
        ("max_kickoffs_per_day", ["secret", -1, 1.5, "many", [5], 1_000_001]),
    ],
)
def test_invalid_extra_field_is_named(field: str, values: list[Any]) -> None:
    for value in values:
        error = fault_of(connection(extra={field: value}))

        assert field in str(error)
        assert "secret" not in str(error)


def test_all_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: set[str] = set()
    monkeypatch.setattr("airflow_provider_crew.hooks.connection.mask_secret", masked.add)
    fields = {"user_bearer_token": USER_TOKEN, "proxy": "me:hunter2@proxy.example:3128"}

    read_connection(connection(password=f" {TOKEN}\n", extra=fields))

    assert masked >= {TOKEN, USER_TOKEN, "hunter2", "bWU6aHVudGVyMg=="}


def test_webhook_secret_and_its_basic_credentials_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: set[str] = set()
    monkeypatch.setattr("airflow_provider_crew.hooks.connection.mask_secret", masked.add)
    fields = {"conn_type": "generic", "login": "me", "password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS", json.dumps(fields))

    secret = load_secret("hooks")

    assert masked >= {"hunter2", "bWU6aHVudGVyMg=="}
    assert "hunter2" not in repr(secret)


@pytest.mark.parametrize("fields", [{"host": "crew.example/{}"}, {"schema": "team/{}"}])
@pytest.mark.parametrize("token", [TOKEN, USER_TOKEN])
def test_token_in_host_or_schema_is_not_repeated(fields: dict[str, str], token: str) -> None:
    places = {name: value.format(token) for name, value in fields.items()}

    error = fault_of(connection(**places, extra={"user_bearer_token": USER_TOKEN}))

    assert token not in str(error) + repr(vars(error))
