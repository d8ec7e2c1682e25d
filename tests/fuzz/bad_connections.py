"""Connections: everything that fits into the form, into a URI or into JSON."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import Connection
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import CallError, CrewError, InvalidSettings
from airflow_provider_crew.client.models import CrewInputs
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.hooks.connection import CrewConnection, read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import outcome, presentable
from tests.fuzz.bad_service import both_clients
from tests.fuzz.bad_values import TOKEN, any_json, any_text

SECRETS = [TOKEN, "s3cr3t/To+ken=", "s3cr3t@To:ken?#", "s3cr3t%2Fto\\ken"]
TELLING = "s3cr3t"
hosts = st.sampled_from(
    [
        *(
            "crew.example",
            "https://crew.example:8443/a",
            "http://127.0.0.1:1",
            "localhost",
            "[::1]",
            "::1",
            "[::1",
        ),
        *("crew.example:port", "crew.example:99999", "http://", "https://https", "ftp://x", "x" * 70 + ".example"),
        *(
            "a..b",
            "ü.example",
            "xn--\ud800",
            "x/kickoff",
            "x/../y",
            "user@x",
            "x?y",
            "x#y",
            "İ.example",
            "\uff11.\uff12",
        ),
    ]
)
paths = st.sampled_from(["", "http", "https", "a/b", "/status/", "..", "%2e%2e", "\ud800", "a b", "http/https"])
ports = st.none() | st.sampled_from([0, 1, 443, 8443, 65535, 65536, -1, 10**30])
extra_fields = {
    "user_bearer_token": st.sampled_from(SECRETS) | any_json,
    "token_type": st.sampled_from(["organization", "user", "admin"]) | any_json,
    "request_timeout": st.sampled_from([30, "30", 0, -1, "x", 1e308, True, 86_401]) | any_json,
    "verify": st.sampled_from([True, "false", "no", __file__, "/", "/dev/null", "a\x00b", 2]) | any_json,
    "proxy": st.sampled_from(["http://u:s3cr3t@p.example:3128", "socks5://p", "p:x", "//", "[", ":0"]) | any_json,
    "status_path": st.sampled_from(["auto", "id_first", "status"]) | any_json,
    "dashboard_url": st.sampled_from(["https://app.example/7", "app", "javascript:alert(1)"]) | any_json,
    "max_kickoffs_per_day": st.sampled_from([5, "5", 0, -1, 10**30, True, 0.5]) | any_json,
    "allow_http": st.sampled_from([True, "yes", "maybe"]) | any_json,
}
extras = st.fixed_dictionaries({}, optional=extra_fields)
fields = st.fixed_dictionaries(
    {},
    optional={
        "host": hosts | any_text,
        "schema": paths | any_text,
        "login": st.sampled_from(SECRETS) | any_text,
        "password": st.sampled_from(SECRETS) | any_text,
        "port": ports,
        "extra": extras.map(json.dumps) | any_text | any_json.map(json.dumps),
    },
)
uris = st.builds(
    lambda scheme, login, password, host, port, path, extra: (
        f"{scheme}{login}:{password}@{host}{port}/{path}?{extra}"
    ),
    st.sampled_from(["crew://", "crew://https://", "crew:", "//", "", "CREW://", "crew://http://"]),
    st.sampled_from(["", "user", *SECRETS]),
    st.sampled_from([*SECRETS, *map(quote, SECRETS), *(quote(secret, safe="") for secret in SECRETS)]),
    hosts | hosts.map(lambda host: quote(host, safe="", errors="replace")) | any_text,
    st.sampled_from(["", ":8443", ":port", ":0", ":"]),
    paths,
    st.dictionaries(st.sampled_from([*extra_fields, "__extra__"]), any_text, max_size=3).map(
        lambda extra: urlencode(extra, errors="replace")
    )
    | any_text,
) | any_text.map(lambda text: f"crew://{text}")
json_texts = st.builds(
    lambda told: json.dumps({"conn_type": "crew"} | told),
    fields
    | st.dictionaries(st.sampled_from(["host", "password", "port", "extra", "schema", "login", "x"]), any_json),
) | any_json.map(json.dumps)


def _secrets_in(*told: Any) -> list[str]:
    return [TELLING] if TELLING in repr(told) else []


def _is_read(connection: Any, *told: Any) -> None:
    try:
        read = read_connection(connection)
    except InvalidSettings as error:
        presentable(error, *_secrets_in(*told))
        assert error.conn_id == "crew"  # noqa: PT017 - or it is read
        return
    assert isinstance(read, CrewConnection)
    assert TELLING not in repr(read)
    assert TOKEN not in repr(read)
    assert read.settings.address.startswith(("http://", "https://"))
    assert (read.settings.address + read.settings.token).isascii()


def fields_are_read(_: World, told: dict[str, Any]) -> None:
    _is_read(Connection(conn_id="crew", conn_type="crew", **told), told)


def a_uri_is_read(_: World, uri: str) -> None:
    _told_by_airflow(uri)
    told: dict[str, Any] = {"conn_id": "crew", "uri": uri}
    try:
        connection = Connection(**told)
    except Exception:  # noqa: BLE001 - Airflow's own, which its look-up takes for a connection that is not there
        return
    _is_read(connection, uri)


def json_is_read(_: World, text: str) -> None:
    _told_by_airflow(text)
    try:
        connection = Connection.from_json(text, conn_id="crew")
    except Exception:  # noqa: BLE001 - Airflow's own, as above
        return
    _is_read(connection, text)


def _told_by_airflow(text: str) -> None:
    """Read it as a task does."""
    hook = CrewHook("crew")
    masked: list[str] = []
    try:
        os.environ["AIRFLOW_CONN_CREW"] = text
    except (ValueError, UnicodeError):
        return
    with patch("airflow_provider_crew.hooks.connection.mask_secret", masked.append):
        try:
            read = hook.connection
        except CrewError as error:
            presentable(error, *_secrets_in(text))
        else:
            assert read.settings.token in masked
    del os.environ["AIRFLOW_CONN_CREW"]


def odd_settings_reach_the_wire(world: World, case: Any) -> None:
    prefix, token, options = case
    world.service.answer = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"inputs": []}'
    address = f"{world.service.url}/{prefix}"
    settings = outcome(lambda: ServiceSettings(address=address, token=token, **options))
    if isinstance(settings, InvalidSettings):
        return
    with both_clients(settings) as crews:
        for crew in crews:
            world.service.asked.clear()
            came = outcome(partial(crew.inputs))
            assert isinstance(came, CrewInputs | CallError)
            if isinstance(came, CrewInputs):
                head = world.service.asked[0].decode("latin-1").split("\r\n")
                assert head[0].endswith("/inputs HTTP/1.1")
                assert f"Authorization: Bearer {settings.token}" in head
                assert sum(line.lower().startswith("authorization:") for line in head) == 1
            elif TELLING in settings.token:
                presentable(came, settings.token)


PROXIES = [
    "http://ü:ü@127.0.0.1:1",
    "http://\ud800@127.0.0.1:1",
    "http://a:\x7f@127.0.0.1:1",
    "127.0.0.1:1?#",
    "[::1",
]
_any_token = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
# Other tokens may well be words of a message.
tokens = _any_token | any_text | _any_token.map(lambda text: f"{text}{TELLING}{text}")
KINDS = (
    Kind("connection, fields", fields, fields_are_read, weight=6),
    Kind("connection, URI", uris, a_uri_is_read, weight=4),
    Kind("connection, JSON", json_texts, json_is_read, weight=4),
    Kind(
        "settings on the wire, both clients",
        st.tuples(
            any_text | paths,
            tokens,
            st.fixed_dictionaries(
                {"request_timeout": st.just(2.0)},
                optional={
                    "proxy": st.sampled_from(PROXIES),
                    "verify": st.just(False),
                    "user_agent": st.just("agent/1"),
                },
            ),
        ),
        odd_settings_reach_the_wire,
        weight=2,
    ),
)
