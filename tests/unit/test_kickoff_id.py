"""A kickoff ID is kept as the service sent it, and stays in its segment of a path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import Cost, InvalidKickoffId
from airflow_provider_crew.client.payload import checked_kickoff_id, issued_kickoff_id, path_segment
from tests.unit.crew_builders import KICKOFF_ID, any_text

ODD_IDS = ["a/b", "..", ".", "%", "%2F", "%2", "a b", "a?b#c", "\\", "日本", "../../inputs"]
VALUES: list[Any] = [
    *(KICKOFF_ID, "übung", "a/b", " 7 ", "a%2Fb", "7" * 1000, "7" * 1001, "a/b" + "x" * 10_000, 42, 0, -(2**70)),
    *(None, "", True, False, [], ["7"], {}, {"a": 1}, 1.5, float("nan"), "a\nb", "\ud800", "\u2028"),
    *(f"{KICKOFF_ID}\n", "a\u2003b", "a\x00b"),
]
PLAIN_SEGMENT = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})+")


def outcome(value: Any) -> str:
    """Return the ID that a response with this value has issued, and its segment of a path."""
    try:
        issued = issued_kickoff_id(value)
    except ValueError as error:
        assert "kickoff_id" in str(error)  # noqa: PT017 - an outcome among others
        issued = "none"
    try:
        segment = path_segment(checked_kickoff_id(value))
    except InvalidKickoffId as error:
        assert len(str(error).encode()) < 500  # noqa: PT017
        assert error.cost is Cost.UNKNOWN  # noqa: PT017
        segment = "none"
    return f"{issued if len(issued) < 50 else len(issued)} | {segment if len(segment) < 50 else len(segment)}"


def table(_: list[str]) -> Iterator[str]:
    for value in VALUES:
        yield f"{ascii(value)[:45]:<45} | {outcome(value)}"


def test_ids_are_those_of_the_table(printed: Any) -> None:
    printed("kickoff_ids.txt", table)


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
