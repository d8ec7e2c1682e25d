"""A kickoff id leads back to what the service sent, and never out of its place in a path."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_crew.service.errors import InvalidKickoffId
from airflow_provider_crew.service.kickoff_id import checked_kickoff_id, issued_kickoff_id, path_segment
from tests.unit.crew_builders import KICKOFF_ID, any_json, any_text

ODD_IDS = [
    "a/b",
    "..",
    ".",
    "%",
    "%2F",
    "%2",
    "a b",
    "a?b#c",
    "\\",
    "\x00",
    "\ud800",
    "日本",
    "a\tb",
    "../../inputs",
]
PLAIN_SEGMENT = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})+")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        pytest.param(KICKOFF_ID, KICKOFF_ID, id="UUID"),
        pytest.param(
            "abcd1234-5678-90ef-ghij-klmnopqrstuv", "abcd1234-5678-90ef-ghij-klmnopqrstuv", id="the example"
        ),
        pytest.param("run:7@eu_1.2~x", "run:7@eu_1.2~x", id="punctuation"),
        pytest.param("übung", "übung", id="unicode"),
        pytest.param(42, "42", id="number"),
        pytest.param(0, "0", id="zero"),
        pytest.param(1.5, "1.5", id="fraction"),
        pytest.param(-(2**70), "-1180591620717411303424", id="wide number"),
        pytest.param("a/b", "a/b", id="slash"),
        pytest.param(" 7 ", " 7 ", id="white space"),
        pytest.param("..", "..", id="dots"),
        pytest.param("100%", "100%", id="percent"),
        pytest.param("a%2Fb", "a%2Fb", id="escape"),
    ],
)
def test_keeps_the_id_that_the_service_sent(value: Any, kept: str) -> None:
    assert issued_kickoff_id(value) == kept


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        True,
        False,
        [],
        ["7"],
        {},
        {"id": "7"},
        *map(json.loads, ["NaN", "Infinity", "-Infinity", "1e309"]),
    ],
    ids=repr,
)
def test_an_answer_without_an_id_holds_none(value: Any) -> None:
    with pytest.raises(ValueError, match="no kickoff_id"):
        issued_kickoff_id(value)


@settings(deadline=None)
@given(value=any_text.filter(bool) | st.integers() | st.sampled_from(ODD_IDS))
def test_an_issued_id_leads_back_to_the_text_that_the_service_sent(value: str | int) -> None:
    try:
        issued = issued_kickoff_id(value)
    except ValueError:
        assert not str(value).isprintable()
        return
    segment = path_segment(checked_kickoff_id(issued))

    assert issued == str(value)
    assert PLAIN_SEGMENT.fullmatch(segment)
    assert unquote(segment) == issued


@pytest.mark.parametrize("value", ["a\x00b", "a\nb", "\ud800", "\u2028"], ids=repr)
def test_an_id_that_cannot_be_printed_is_none(value: str) -> None:
    with pytest.raises(ValueError, match="its kickoff_id has characters that cannot be printed"):
        issued_kickoff_id(value)


def test_an_id_without_end_is_none() -> None:
    assert issued_kickoff_id("7" * 1000)
    with pytest.raises(ValueError, match="its kickoff_id is longer than 1,000 characters"):
        issued_kickoff_id("7" * 1001)


@settings(deadline=None)
@given(given_id=any_text | st.text("./%2Fe\\?#:@ ", max_size=8) | st.sampled_from(ODD_IDS))
@example(given_id="x/../../inputs")
def test_no_id_leaves_its_segment_of_the_path(given_id: str) -> None:
    try:
        segment = path_segment(checked_kickoff_id(given_id))
    except InvalidKickoffId:
        return

    assert PLAIN_SEGMENT.fullmatch(segment)
    assert segment not in {".", ".."}
    assert urlsplit(f"https://crew.example/status/{segment}")[2:] == (f"/status/{segment}", "", "")


@pytest.mark.parametrize(
    ("given_id", "fault"),
    [
        pytest.param("", "is empty", id="empty"),
        pytest.param(f"{KICKOFF_ID}\n", "cannot be printed", id="pasted with a line end"),
        pytest.param("a\u2003b", "cannot be printed", id="wide space"),
        pytest.param("a\x00b", "cannot be printed", id="NUL"),
        pytest.param("\ud800", "cannot be printed", id="half a character"),
        pytest.param("x" * 1001, "longer than 1,000 characters", id="too long"),
    ],
)
def test_an_id_that_no_kickoff_returned_is_refused(given_id: str, fault: str) -> None:
    with pytest.raises(InvalidKickoffId, match=fault) as caught:
        checked_kickoff_id(given_id)

    assert str(caught.value).encode()


def test_a_refused_id_is_shown_to_recognise_it() -> None:
    with pytest.raises(InvalidKickoffId, match=re.escape("'a/bxxx")) as caught:
        checked_kickoff_id("a/b" + "x" * 10_000)

    assert len(caught.value.what) < 100


@settings(deadline=None)
@given(given_id=any_json.filter(lambda value: not isinstance(value, str)))
def test_what_is_no_text_is_refused(given_id: Any) -> None:
    with pytest.raises(InvalidKickoffId, match="no text"):
        checked_kickoff_id(given_id)
