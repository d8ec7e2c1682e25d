"""Settings of the client are accepted as users write them, or rejected without repeating a secret."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hypothesis
import pytest
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_crew.client.errors import InvalidSettings
from airflow_provider_crew.client.settings import USER_AGENT
from tests.unit.crew_builders import PART_OF_TOKEN, TOKEN, any_text, settings

if TYPE_CHECKING:
    from pathlib import Path


def fault_of(**changes: Any) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as caught:
        settings(**changes)
    return caught.value


@pytest.mark.parametrize(
    ("given", "address"),
    [
        pytest.param("https://my-crew.crewai.com", "https://my-crew.crewai.com", id="full"),
        pytest.param("my-crew.crewai.com", "https://my-crew.crewai.com", id="bare name"),
        pytest.param("localhost:8443", "https://localhost:8443", id="bare name and port"),
        pytest.param("my-crew.crewai.com/v2/", "https://my-crew.crewai.com/v2", id="bare name and prefix"),
        pytest.param("  https://crew.example\n", "https://crew.example", id="pasted"),
        pytest.param("HTTPS://Crew.Example/Prefix", "https://crew.example/Prefix", id="upper case"),
        pytest.param("https://crew.example:8443/a/b//", "https://crew.example:8443/a/b", id="port and prefix"),
        pytest.param("https://crew.example:443", "https://crew.example", id="the usual port"),
        pytest.param("https://crew.example:/", "https://crew.example", id="colon without a port"),
        pytest.param("https://crew.example/a%2Fb", "https://crew.example/a%2Fb", id="escaped prefix"),
        pytest.param("https://crew.example/größe", "https://crew.example/gr%C3%B6%C3%9Fe", id="prefix in unicode"),
        pytest.param("https://crew.example/status-page", "https://crew.example/status-page", id="not an endpoint"),
        pytest.param("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", id="IPv6"),
        pytest.param("[2001:db8::1]", "https://[2001:db8::1]", id="bare IPv6"),
        pytest.param("https://bücher.example", "https://xn--bcher-kva.example", id="IDN"),
        pytest.param("http://localhost:8765", "http://localhost:8765", id="http, localhost"),
        pytest.param("http://crew.localhost", "http://crew.localhost", id="http, below localhost"),
        pytest.param("http://127.0.0.1", "http://127.0.0.1", id="http, 127.0.0.1"),
        pytest.param("http://127.1.2.3", "http://127.1.2.3", id="http, 127.x"),
        pytest.param("http://2130706433", "http://127.0.0.1", id="http, 127.0.0.1 as a number"),
        pytest.param("https://crew.example/a/../b", "https://crew.example/b", id="steps"),
        pytest.param("http://[::1]:8765/x", "http://[::1]:8765/x", id="http, ::1"),
    ],
)
def test_address_is_normalized(given: str, address: str) -> None:
    assert settings(address=given).address == address


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("", id="empty"),
        pytest.param("  ", id="blank"),
        pytest.param("https://", id="no name"),
        pytest.param("https:/crew.example", id="one slash"),
        pytest.param("https://https://crew.example", id="scheme twice"),
        pytest.param("ftp://crew.example", id="ftp"),
        pytest.param("file:///etc/passwd", id="file"),
        pytest.param("https://crew example", id="white space"),
        pytest.param("https://crew.example\r\nX: y", id="a header"),
        pytest.param("https://me:secret@crew.example", id="credentials"),
        pytest.param("https://secret@crew.example", id="user"),
        pytest.param("https://crew.example?token=secret", id="query"),
        pytest.param("https://crew.example/#secret", id="fragment"),
        pytest.param("https://crew.example:secret", id="port is a word"),
        pytest.param("https://crew.example:65536", id="port too high"),
        pytest.param("https://[::1", id="bracket"),
        pytest.param("https://[secret]", id="no IPv6"),
        pytest.param("https://2001:db8::1", id="IPv6 without brackets"),
        pytest.param("https://<my-crew>.crewai.com", id="as in the manual"),
        pytest.param("https://crew.example/kickoff", id="kickoff"),
        pytest.param("https://crew.example/v1/inputs/", id="inputs"),
        pytest.param("https://crew.example/status", id="status"),
        pytest.param("https://crew.example/\ud800", id="half a character"),
    ],
)
def test_unusable_address_is_rejected(address: str) -> None:
    told = str(fault_of(address=address))

    assert "address" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    "address",
    [
        "http://crew.example",
        "http://10.0.0.1:8000",
        "http://127.0.0.1.crew.example",
        "http://localhost.crew.example",
        "http://notlocalhost",
        "http://[2001:db8::1]",
        "http://0.0.0.0",
    ],
)
def test_plain_http_needs_allow_http(address: str) -> None:
    error = fault_of(address=address)

    assert "allow_http" in str(error)
    assert settings(address=address, allow_http=True).address == address


@pytest.mark.parametrize(
    "address",
    [
        "https://crew.example:{}",
        "https://user:{}@crew.example",
        "https://{}@crew.example",
        "https://org\u2100@crew.example",  # normalized to a slash
        "https://[{}]",
    ],
)
def test_token_inside_an_invalid_address_is_not_repeated(address: str) -> None:
    assert not re.search(PART_OF_TOKEN, str(fault_of(address=address.format(TOKEN))))


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(
    address=st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "https://", "http://", "HTTPS:", "//"]),
        st.sampled_from(["crew.example", "[::1]", "127.0.0.1", "bücher.example", "xn--a", "a.", ""]) | any_text,
        st.sampled_from(["", ":", ":8443", ":0"]) | any_text,
        st.sampled_from(["", "/", "/a/b/", "/%2e%2e"]) | any_text.map("/{}".format),
    )
)
def test_any_address_is_rejected_or_usable(address: str) -> None:
    try:
        accepted = settings(address=address, allow_http=True).address
    except InvalidSettings:
        return

    parts = urlsplit(accepted)
    assert accepted.isascii()
    assert accepted.isprintable()
    assert parts.scheme in {"http", "https"}
    assert parts.hostname
    assert (parts.username, parts.query, parts.fragment) == (None, "", "")
    assert not accepted.endswith("/")
    assert settings(address=accepted, allow_http=True).address == accepted


@pytest.mark.parametrize(
    ("given", "token"),
    [
        pytest.param(TOKEN, TOKEN, id="as it is"),
        pytest.param(f" \t{TOKEN}\r\n", TOKEN, id="pasted"),
        pytest.param("a.b-c_d~e+f/g==", "a.b-c_d~e+f/g==", id="punctuation"),
        pytest.param("a\\b", "a\\b", id="backslash"),
    ],
)
def test_token_is_stripped(given: str, token: str) -> None:
    assert settings(token=given).token == token


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param(" \n", id="blank"),
        pytest.param("Bearer abcdef", id="with the word"),
        pytest.param("abc\r\ndef", id="a header"),
        pytest.param("abc\x00def", id="NUL"),
        pytest.param("abc\x7fdef", id="DEL"),
        pytest.param("abcdéf", id="not ASCII"),
        pytest.param("abc\u200bdef", id="zero width"),
    ],
)
def test_impossible_token_is_rejected(token: str) -> None:
    told = str(fault_of(token=token))

    assert "token" in told
    assert "abc" not in told


@pytest.mark.parametrize(
    ("given", "proxy"),
    [
        pytest.param(None, None, id="none"),
        pytest.param("", None, id="empty"),
        pytest.param("http://proxy.example:3128", "http://proxy.example:3128", id="http"),
        pytest.param("https://proxy.example", "https://proxy.example", id="https"),
        pytest.param("proxy.example:3128", "http://proxy.example:3128", id="without scheme"),
        pytest.param(" http://proxy.example ", "http://proxy.example", id="pasted"),
        pytest.param("http://me:pa%40ss@proxy.example", "http://me:pa%40ss@proxy.example", id="password"),
        pytest.param("http://[::1]:3128", "http://[::1]:3128", id="IPv6"),
    ],
)
def test_proxy_is_normalized(given: str | None, proxy: str | None) -> None:
    assert settings(proxy=given).proxy == proxy


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://me:hunter2@proxy.example",
        "socks5h://proxy.example",
        "ftp://proxy.example",
        "http://",
        "http://me:hunter2@",
        "http://proxy.example:hunter2",
        "http://proxy.example:99999",
        "http://[::1",
        "http://me:hunter2@two words",
        " ",
    ],
)
def test_unusable_proxy_is_rejected(proxy: str) -> None:
    told = str(fault_of(proxy=proxy))

    assert "proxy" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("request_timeout", [0, -1, 86_401, 1e12, float("nan"), float("inf"), float("-inf")]),
        ("status_path", ["AUTO", "/status/{}", 7]),
        ("verify", [7, ["ca.pem"]]),
    ],
)
def test_invalid_field_is_named(field: str, values: list[Any]) -> None:
    for value in values:
        assert field in str(fault_of(**{field: value}))


def test_verify_accepts_a_certificate_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()

    assert settings(verify=str(tmp_path / "ca.pem")).verify == str(tmp_path / "ca.pem")
    assert settings(verify=False).verify is False


def test_settings_show_no_secret() -> None:
    shown = repr(settings(proxy="http://me:hunter2@proxy.example"))

    assert TOKEN not in shown
    assert "hunter2" not in shown
    assert "https://crew.example" in shown


def test_settings_are_frozen_and_hashable() -> None:
    one, same, other = settings(), settings(), settings(token="another-token")

    assert {one: 1}[same] == 1
    assert one != other
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - made here
    with pytest.raises(ValidationError):
        one.token = "another-token"  # type: ignore[misc]


def test_empty_field_has_its_default() -> None:
    assert settings(request_timeout="", verify=None, proxy="", status_path=None, allow_http="") == settings()


def test_defaults() -> None:
    default = settings()

    assert (default.request_timeout, default.verify, default.proxy) == (60.0, True, None)
    assert (default.status_path, default.allow_http) == ("auto", False)
    assert default.user_agent == USER_AGENT
    assert USER_AGENT.startswith("airflow-provider-crew/")


BREAKS = ["\n", "\r\n", "\t", "\x00", "\u2028", "\u200b", "\x7f"]


@pytest.mark.parametrize("inside", BREAKS, ids=ascii)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("address", "https://crew.{}example"),
        ("address", "crew.example{}.evil.example"),
        ("address", "ht{}tps://crew.example"),
        ("proxy", "http://gateway.{}example:3128"),
    ],
)
def test_line_break_inside_an_address_is_refused(field: str, value: str, inside: str) -> None:
    told = str(fault_of(**{field: value.format(inside)}))

    assert value.format(inside) not in told
    assert value.format("") not in told


@pytest.mark.parametrize(
    "address",
    [
        "https://crew.example/{}",
        "https://crew.example/a/{}/b",
        "http://crew.example/{}",
        "http://127.0.0.1:8765/{}",
        "https://{}.example",
    ],
)
@pytest.mark.parametrize(
    ("token", "written"),
    [
        (TOKEN, TOKEN),
        (TOKEN, TOKEN.replace("/", "%2F").replace("+", "%2b")),
        ("org-Token-0123456789", "org-Token-0123456789"),
        ("org-Token-0123456789", "ORG-token-0123456789"),
        ("org{Token}0123", "org{Token}0123"),
        ("100%-a-secret", "100%-a-secret"),
    ],
)
def test_token_inside_the_address_is_refused(address: str, token: str, written: str) -> None:
    error = fault_of(address=address.format(written), token=token)

    assert token not in str(error) + repr(vars(error))
    assert written not in str(error) + repr(vars(error))


def test_address_without_encryption_is_not_repeated() -> None:
    assert "other-token" not in str(fault_of(address="http://crew.example/other-token"))


def test_short_token_may_be_a_part_of_the_address() -> None:
    assert settings(address="https://crew.example", token="crew").address == "https://crew.example"
