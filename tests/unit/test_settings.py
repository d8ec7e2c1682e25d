"""Settings of the client are accepted as users write them, or rejected without repeating a secret."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_crew.client.errors import InvalidSettings
from tests.unit.crew_builders import PART_OF_TOKEN, TOKEN, settings


def fault_of(**changes: Any) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as caught:
        settings(**changes)
    return caught.value


@pytest.mark.parametrize(
    ("given", "address"),
    [
        pytest.param("https://my-crew.crewai.com", "https://my-crew.crewai.com", id="full"),
        pytest.param("my-crew.crewai.com", "https://my-crew.crewai.com", id="bare name"),
        pytest.param("my-crew.crewai.com/v2/", "https://my-crew.crewai.com/v2", id="bare name and prefix"),
        pytest.param("  https://crew.example\n", "https://crew.example", id="pasted"),
        pytest.param("HTTPS://Crew.Example/Prefix", "https://crew.example/Prefix", id="upper case"),
        pytest.param("https://crew.example:443", "https://crew.example", id="the usual port"),
        pytest.param("https://crew.example/größe", "https://crew.example/gr%C3%B6%C3%9Fe", id="prefix in unicode"),
        pytest.param("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", id="IPv6"),
        pytest.param("[2001:db8::1]", "https://[2001:db8::1]", id="bare IPv6"),
        pytest.param("http://2130706433", "http://127.0.0.1", id="http, 127.0.0.1 as a number"),
        pytest.param("http://[::1]:8765/x", "http://[::1]:8765/x", id="http, ::1"),
    ],
)
def test_address_is_normalized(given: str, address: str) -> None:
    assert settings(address=given).address == address


@pytest.mark.parametrize(
    "address",
    [
        *(
            "",
            "https://",
            "https://https://crew.example",
            "ftp://crew.example",
            "https://crew example",
            "https://[::1",
        ),
        *("https://me:secret@crew.example", "https://crew.example?token=secret", "https://crew.example/#secret"),
        *("https://crew.example:secret", "https://<my-crew>.crewai.com", "https://crew.example/kickoff"),
        "https://crew.example/\ud800",
    ],
    ids=ascii,
)
def test_unusable_address_is_rejected(address: str) -> None:
    told = str(fault_of(address=address))

    assert "address" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    "address", ["http://crew.example", "http://127.0.0.1.crew.example", "http://[2001:db8::1]"]
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


@pytest.mark.parametrize(("given", "token"), [(f" \t{TOKEN}\r\n", TOKEN), ("a.b-c_d~e+f/g==", "a.b-c_d~e+f/g==")])
def test_token_is_stripped(given: str, token: str) -> None:
    assert settings(token=given).token == token


@pytest.mark.parametrize("token", ["", "Bearer abcdef", "abc\r\ndef", "abcdéf"])
def test_impossible_token_is_rejected(token: str) -> None:
    told = str(fault_of(token=token))

    assert "token" in told
    assert "abc" not in told


@pytest.mark.parametrize(
    ("given", "proxy"),
    [
        ("", None),
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("http://me:pa%40ss@proxy.example", "http://me:pa%40ss@proxy.example"),
    ],
)
def test_proxy_is_normalized(given: str | None, proxy: str | None) -> None:
    assert settings(proxy=given).proxy == proxy


@pytest.mark.parametrize(
    "proxy",
    [
        *("socks5://me:hunter2@proxy.example", "http://", "http://proxy.example:hunter2", "http://[::1"),
        "http://me:hunter2@two words",
    ],
)
def test_unusable_proxy_is_rejected(proxy: str) -> None:
    told = str(fault_of(proxy=proxy))

    assert "proxy" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("inside", ["\n", "\r\n", "\t", "\x00", "\u2028", "\u200b", "\x7f"], ids=ascii)
@pytest.mark.parametrize(
    ("field", "value"), [("address", "https://crew.{}example"), ("proxy", "http://gateway.{}example:3128")]
)
def test_line_break_inside_an_address_is_refused(field: str, value: str, inside: str) -> None:
    told = str(fault_of(**{field: value.format(inside)}))

    assert value.format(inside) not in told
    assert value.format("") not in told


@pytest.mark.parametrize("address", ["https://crew.example/{}", "https://{}.example"])
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
