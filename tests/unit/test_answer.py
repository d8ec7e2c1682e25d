from __future__ import annotations

import json

import pytest
from crew_builders import TOKEN, answer

DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "body", [pytest.param(DEEP, id="deep"), pytest.param(DEEP + b"\xff", id="deep, wrong byte")]
)
def test_json_that_is_nested_too_deeply_is_told_and_not_parsed(body: bytes) -> None:
    received = answer(500, body)

    assert "It begins: '[[[" in received.reason()
    with pytest.raises(ValueError, match="nested too deeply"):
        received.json_object()


def test_an_integer_too_long_for_python_does_not_cost_the_answer() -> None:
    digits = "9" * 5000

    received = answer(200, f'{{"status": "completed", "n": {digits}}}'.encode())

    assert received.json_object() == {"status": "completed", "n": digits}


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param(TOKEN, id="as it is"),
        pytest.param(TOKEN.replace("/", r"\/"), id="escaped slash"),
        pytest.param(TOKEN.replace("/", r"\\\/"), id="escaped twice"),
        pytest.param(TOKEN.replace("+", r"\u002B").replace("=", r"\u003d"), id="escaped as unicode"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_no_error_repeats_the_token_from_the_body(repeated: str, encoding: str) -> None:
    body = f'{{"error": "Unauthorized", "message": "No access with {repeated}, sorry."}}'
    received = answer(401, body.encode(encoding))

    for text in (received.reason(), received.excerpt()):
        assert TOKEN not in text.replace("\\", "")
        assert "No access with ***, sorry." in text


@pytest.mark.parametrize(
    ("location", "target"),
    [
        pytest.param(f"https://crew.example/{TOKEN}/x", "https://crew.example/***/x", id="token"),
        pytest.param("/org%2fToken-0123%2B45%3D6789/x", "/***/x", id="token, escaped"),
        pytest.param("//other.example/x", "//other.example/x", id="without scheme"),
    ],
)
def test_tells_where_a_redirect_leads_without_the_token(location: str, target: str) -> None:
    assert answer(302, headers={"Location": location}).redirect_target == target


def test_an_error_body_that_says_nothing_is_shown_as_it_is() -> None:
    received = answer(500, {"error": "", "message": ""}, {"Content-Type": "application/json"})

    assert received.reason() == """ It begins: '{"error": "", "message": ""}' (application/json)."""


def test_names_of_missing_inputs_can_be_stored() -> None:
    body = {"error": "Missing", "message": "inputs", "details": {"missing_inputs": ["a\x00", "\ud800", 7, "ü"]}}

    assert answer(422, json.dumps(body).encode()).missing_inputs == ("a\ufffd", "\ufffd", "ü")
