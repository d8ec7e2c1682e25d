"""Connections: everything that fits into the form, into a URI or into JSON."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import Connection
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import CrewError, InvalidSettings
from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from tests.fuzz.bad_values import TOKEN, any_json, any_text
from tests.fuzz.cases import assert_presentable, cases

SECRETS = [TOKEN, "s3cr3t/To+ken=", "s3cr3t@To:ken?#", "s3cr3t%2Fto\\ken"]
SECRET_PART = "s3cr3t"
HOSTS = [
    *("crew.example", "https://crew.example:8443/a", "http://127.0.0.1:1", "localhost", "[::1]", "::1", "[::1"),
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
PATHS = ["", "http", "https", "a/b", "/status/", "..", "%2e%2e", "\ud800", "a b", "http/https"]
hosts, paths, secrets = st.sampled_from(HOSTS), st.sampled_from(PATHS), st.sampled_from(SECRETS)
extra_fields = {
    "user_bearer_token": secrets | any_json,
    "token_type": st.sampled_from(["organization", "user", "admin"]) | any_json,
    "request_timeout": st.sampled_from([30, "30", 0, -1, "x", 1e308, True, 86_401]) | any_json,
    "verify": st.sampled_from([True, "false", "no", __file__, "/", "/dev/null", "a\x00b", 2]) | any_json,
    "proxy": st.sampled_from(["http://u:s3cr3t@p.example:3128", "socks5://p", "p:x", "//", "[", ":0"]) | any_json,
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
        "login": secrets | any_text,
        "password": secrets | any_text,
        "port": st.none() | st.sampled_from([0, 1, 443, 8443, 65535, 65536, -1, 10**30]),
        "extra": extras.map(json.dumps) | any_text | any_json.map(json.dumps),
    },
)
uris = st.builds(
    lambda scheme, login, password, host, port, path, extra: (
        f"{scheme}{login}:{password}@{host}{port}/{path}?{extra}"
    ),
    st.sampled_from(["crew://", "crew://https://", "crew:", "//", "", "CREW://", "crew://http://"]),
    st.just("") | secrets,
    secrets | secrets.map(quote) | secrets.map(lambda secret: quote(secret, safe="")),
    hosts | hosts.map(lambda host: quote(host, safe="", errors="replace")) | any_text,
    st.sampled_from(["", ":8443", ":port", ":0", ":"]),
    paths,
    st.dictionaries(st.sampled_from([*extra_fields, "__extra__"]), any_text, max_size=3).map(
        lambda extra: urlencode(extra, errors="replace")
    )
    | any_text,
)
json_texts = fields.map(lambda given: json.dumps({"conn_type": "crew"} | given)) | any_json.map(json.dumps)


@cases(fields)
def test_fields_are_read_or_rejected_without_secrets(given: dict[str, Any]) -> None:
    try:
        read = read_connection(Connection(conn_id="crew", conn_type="crew", **given))
    except InvalidSettings as error:
        assert_presentable(error, *secrets_in(given))
        assert error.event.startswith("Connection 'crew' is unusable. ")  # noqa: PT017 - or it is read
        return
    assert SECRET_PART not in repr(read)
    assert TOKEN not in repr(read)
    assert read.settings.address.startswith(("http://", "https://"))
    assert (read.settings.address + read.settings.token).isascii()


@cases(uris | any_text.map(lambda text: f"crew://{text}") | json_texts)
def test_hook_reads_or_rejects_a_variable_without_secrets(text: str) -> None:
    hook, masked = CrewHook("crew"), list[str]()
    try:
        os.environ["AIRFLOW_CONN_CREW"] = text
    except (ValueError, UnicodeError):
        return
    with patch("airflow_provider_crew.hooks.connection.mask_secret", masked.append):
        try:
            read = hook.connection
        except CrewError as error:
            assert_presentable(error, *secrets_in(text))
        else:
            assert read.settings.token in masked
    del os.environ["AIRFLOW_CONN_CREW"]


def secrets_in(given: Any) -> list[str]:
    return [SECRET_PART] if SECRET_PART in repr(given) else []
