"""A kickoff ID is kept as the service sent it, and stays in its segment of a path."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import Cost, InvalidKickoffId
from airflow_provider_crew.client.payload import checked_kickoff_id, issued_kickoff_id, path_segment
from tests.unit.crew_builders import KICKOFF_ID, any_text

ODD_IDS = ["a/b", "..", ".", "%", "%2F", "%2", "a b", "a?b#c", "\\", "日本", "../../inputs"]
PLAIN_SEGMENT = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})+")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        *((text, text) for text in (KICKOFF_ID, "übung", "a/b", " 7 ", "a%2Fb", "7" * 1000)),
        *((42, "42"), (0, "0"), (-(2**70), "-1180591620717411303424")),
    ],
)
def test_issued_id_is_kept(value: Any, kept: str) -> None:
    assert issued_kickoff_id(value) == kept


@pytest.mark.parametrize(
    "value",
    [None, "", True, False, [], ["7"], {}, 1.5, float("nan"), "a\nb", "\ud800", "\u2028", "7" * 1001],
    ids=ascii,
)
def test_answer_without_an_id_is_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match="kickoff_id"):
        issued_kickoff_id(value)


@settings(deadline=None)
@given(given_id=any_text | st.text("./%2Fe\\?#:@ ", max_size=8) | st.sampled_from(ODD_IDS))
@example(given_id="x/../../inputs")
def test_no_id_leaves_its_path_segment(given_id: str) -> None:
    try:
        segment = path_segment(checked_kickoff_id(given_id))
    except InvalidKickoffId:
        return

    assert PLAIN_SEGMENT.fullmatch(segment)
    assert unquote(segment) == issued_kickoff_id(given_id) == given_id
    assert segment not in {".", ".."}
    assert urlsplit(f"https://crew.example/status/{segment}")[2:] == (f"/status/{segment}", "", "")


@pytest.mark.parametrize(
    "given_id",
    ["", f"{KICKOFF_ID}\n", "a\u2003b", "a\x00b", "\ud800", "x" * 1001, "a/b" + "x" * 10_000, 7, {"a": 1}],
    ids=lambda given_id: ascii(given_id)[:20],
)
def test_impossible_id_is_rejected(given_id: Any) -> None:
    with pytest.raises(InvalidKickoffId) as caught:
        checked_kickoff_id(given_id)

    assert str(caught.value).encode()
    assert len(str(caught.value)) < 500
    assert caught.value.cost is Cost.UNKNOWN
