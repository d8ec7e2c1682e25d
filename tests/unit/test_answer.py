"""Reading any answer to a request, without repeating a secret from it."""

from __future__ import annotations

import json
import time
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


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("0", 0.0),
        (DATE_IN_A_MINUTE, 60.0),
        (DATE_IN_A_MINUTE.replace("GMT", "+0200"), 60.0 - 7200.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        (".", None),
        ("1.2.3", None),
        ("²", None),
        ("Mon, 99 Foo 2026 99:99:99 GMT", None),
        ("Wed, 21 Oct 99999 07:28:00 GMT", None),
        ("Tue, 01 Jan 2019 00:00:00 +99999999999", None),
    ],
    ids=lambda value: "in a minute" if DATE_IN_A_MINUTE[:25] in str(value) else None,  # the same in each process
)
def test_retry_after_is_read(header: str, seconds: float | None) -> None:
    told = answer(503, headers={"Retry-After": header}).retry_after

    # A date is told in whole seconds, and read a while later.
    assert told == (
        seconds if seconds is None else pytest.approx(max(0.0, seconds), abs=60 if "GMT" in header else 0)
    )


@hypothesis.settings(deadline=None, max_examples=300)
@hypothesis.given(header=st.text(max_size=40) | st.text("WedOct0123456789:.,+-GMT ", max_size=40))
def test_any_retry_after_is_a_time_or_none(header: str) -> None:
    seconds = answer(503, headers={"Retry-After": header}).retry_after

    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("body", "is_the_service"),
    [
        ({"error": "Not found", "message": "No execution 7."}, True),
        ({"error": "a", "message": "b", "details": {}}, True),
        ({"error": "a"}, False),
        (
            {"timestamp": "2026-01-01", "status": 404, "error": "Not Found", "message": "", "path": "/status/7"},
            False,
        ),
        ({"statusCode": 404, "message": "Cannot GET /status/7", "error": "Not Found"}, False),
        ({"error": "Not Found", "message": "no", "path": "/status/7"}, False),
        ({"message": "a"}, False),
        ({"detail": "Not Found"}, False),
        ({"error": {"code": 404}, "message": "b"}, False),
        (["error", "message"], False),
        (b"<html>404</html>", False),
        (b"", False),
        pytest.param(DEEP, False, id="deep"),
    ],
)
def test_error_body_of_the_service_is_recognized(body: Any, is_the_service: Any) -> None:
    assert answer(404, body).has_error_body is is_the_service


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "Unauthorized", "message": "The token is invalid."}, "Unauthorized: The token is invalid"),
        (
            {"type": "about:blank", "title": "Bad gateway", "detail": "No upstream", "status": 502},
            "Bad gateway: No upstream",
        ),
        ({"detail": "Not Found"}, "Not Found"),
        ({"error": "No", "message": "Not with this token."}, "No: Not with this token"),
        ({"state": "NOT FOUND", "status": "Task not found"}, "Task not found"),
        ({"status": "error", "error": "boom"}, "boom"),
        ({"detail": []}, '{"detail": []}'),
        ({"error": "", "message": ""}, '{"error": "", "message": ""}'),
        pytest.param(DEEP + b"\xff", "[[[", id="deep"),
        ({"error": "a\x00\ud800"}, "a\ufffd\ufffd"),
        pytest.param({"error": "x" * 2000}, f"{'x' * 500}…", id="long"),
        ({"error": {"code": 7}}, '{"error": {"code": 7}}'),
        ([1], "[1]"),
        (b"<html>\r\n  <h1>502</h1>\n</html>", "<html> <h1>502</h1> </html>"),
        (b"abc\x00\xff", "abc\ufffd\ufffd"),
        pytest.param(b"x" * 2000, f"{'x' * 200}…", id="long text"),
    ],
)
def test_reason_has_the_services_own_words(body: Any, words: str) -> None:
    reason = answer(502, body, {"Content-Type": "text/html"}).reason()

    assert words in reason
    assert len(reason) < 700


def test_empty_body_has_no_reason() -> None:
    assert answer(502, b"").reason() == ""


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
    ("body", "names"),
    [
        ({"details": {"missing_inputs": ["day", 7, "topic"]}}, ("day", "topic")),
        ({"details": {"missing_inputs": ["a\x00", "\ud800"]}}, ("a\ufffd", "\ufffd")),
        ({"details": {"missing_inputs": "day"}}, ()),
        ({"details": ["day"]}, ()),
        ({"detail": "Missing inputs: audience, topic"}, ("audience", "topic")),
        ({"detail": "missing INPUTS:topic,, "}, ("topic",)),
        ({"detail": "Missing inputs:"}, ()),
        ({"detail": "No: Missing inputs: topic"}, ()),
        ({"detail": ["Missing inputs: topic"]}, ()),
        ({}, ()),
        ([], ()),
    ],
)
def test_missing_inputs_are_read(body: Any, names: tuple[str, ...]) -> None:
    assert answer(422, body).missing_inputs == names


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
