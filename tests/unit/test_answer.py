"""
Reading any answer to a request, without repeating a secret from it.

``errors.txt`` has the bodies of errors. The line below each has its sender, the inputs that it reports as missing,
and the reason.
"""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import UnreadableResponse
from airflow_provider_crew.client.text import forms_of
from tests.unit.crew_builders import TOKEN, answer

DEEP = b"[" * 100_000
DATE_IN_A_MINUTE = formatdate(time.time() + 60, usegmt=True)


ODD = ["", "soon", "-5", "1e3", "nan", "inf", ".", "1.2.3", "²", "Mon, 99 Foo 2026 99:99:99 GMT"]
ODD += ["Wed, 21 Oct 99999 07:28:00 GMT", "Tue, 01 Jan 2019 00:00:00 +99999999999"]
SECONDS = {"120": 120.0, " 5 ": 5.0, "0": 0.0, "Wed, 21 Oct 2015 07:28:00 GMT": 0.0, **dict.fromkeys(ODD)}


def test_retry_after_is_read() -> None:
    assert {header: answer(503, headers={"Retry-After": header}).retry_after for header in SECONDS} == SECONDS
    # A date is told in whole seconds, and read a while later.
    for zone, seconds in (("GMT", 60.0), ("+0200", 0.0)):
        header = DATE_IN_A_MINUTE.replace("GMT", zone)
        assert answer(503, headers={"Retry-After": header}).retry_after == pytest.approx(seconds, abs=60)


@hypothesis.settings(deadline=None, max_examples=300)
@hypothesis.given(header=st.text(max_size=40) | st.text("WedOct0123456789:.,+-GMT ", max_size=40))
def test_any_retry_after_is_a_time_or_none(header: str) -> None:
    seconds = answer(503, headers={"Retry-After": header}).retry_after

    assert seconds is None or seconds >= 0


def table(known: list[str]) -> Iterator[str]:
    for line in known:
        if not line.startswith("    "):
            yield line
        if line and line[0] not in "# ":
            received = answer(422, ast.literal_eval(line), {"Content-Type": "text/html"})
            whose = "the crew" if received.has_error_body else "another"
            missing = f", missing {received.missing_inputs}" if received.missing_inputs else ""
            yield f"    {whose}{missing}:{received.reason() or ' nothing'}"


def test_errors_are_read_as_in_the_table(printed: Any) -> None:
    printed("errors.txt", table)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(DEEP + b"\xff", "[[[", id="deep"),
        pytest.param({"error": "x" * 2000}, f"{'x' * 500}…", id="long"),
        pytest.param(b"x" * 2000, f"{'x' * 200}…", id="long text"),
    ],
)
def test_long_reason_is_cut(body: Any, words: str) -> None:
    received = answer(502, body, {"Content-Type": "text/html"})

    assert words in received.reason()
    assert len(received.reason()) < 700
    assert not received.has_error_body


@pytest.mark.parametrize("body", [b"", b"{", b"null", b'"text"', b"[]", b"7", b"<html>", DEEP], ids=str)
def test_body_that_is_no_object_is_rejected(body: bytes) -> None:
    with pytest.raises(UnreadableResponse):
        answer(200, body).read(dict)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"a": "ü"}'.encode(), "ü"),
        (b'\xef\xbb\xbf{"a": "x"}', "x"),
        (b'{"a": "x\xff"}', "x\ufffd"),
        (b'{"a": "\xed\xa0\x80"}', "\ufffd\ufffd\ufffd"),
    ],
)
def test_json_is_read_in_any_encoding(content: bytes, text: str) -> None:
    assert answer(200, content).read(dict) == {"a": text}


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://new.example/crew", "https://new.example/crew"),
        ("https://new.example:8443/a%20b?session=secret#x", "https://new.example:8443/a%20b"),
        ("/login", "/login"),
        ("/\x00", "/\ufffd"),
        ("", ""),
    ],
)
def test_redirect_target_has_no_query(location: str, target: str) -> None:
    assert answer(302, headers={"Location": location}).redirect_target == target


def test_short_token_is_not_masked() -> None:
    received = answer(500, b"no such element", forms=forms_of(*("e", "")))

    assert received.excerpt() == "no such element"


def test_secrets_inside_each_other_are_masked() -> None:
    secrets = (TOKEN, "webhook-secret", f"webhook-secret-of-{TOKEN}", "")
    body = {"error": "not with webhook-secret", "message": f"nor {TOKEN}, nor webhook-secret-of-{TOKEN}"}
    content = json.dumps(body).encode()

    received = answer(401, content, {"Location": "/webhook-secret/x"}, forms_of(*secrets))

    assert "not with ***: nor ***, nor ***" in received.reason()
    assert received.redirect_target == "/***/x"
