"""Texts of others: what a log shows, their JSON (``json_texts.txt``), and IDs (``kickoff_ids.txt``)."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import Cost, InvalidKickoffId
from airflow_provider_crew.client.models import json_of, json_within
from airflow_provider_crew.client.payload import checked_kickoff_id, issued_kickoff_id
from airflow_provider_crew.client.text import one_line, quoted

# What Airflow's log page folds by, anywhere in a line.
FOLDS = re.compile(r"::group::|::endgroup::")
FOLDING = st.text(st.sampled_from(":\n endgroup\x00\u200d")) | st.lists(
    st.sampled_from(["::", ":", "group", "end", "\n", " ", "\0", "\u200d", "\u00ad"])
).map("".join)


@given(FOLDING | st.text(), st.integers(1, 60))
def test_any_text_folds_nothing_and_has_no_control_codes(text: str, most: int) -> None:
    shown, is_cut = quoted(text, most)

    for line in shown.split("\n") if shown else []:
        assert line.startswith("|")
        assert not FOLDS.search(line)
        assert not {unicodedata.category(c) for c in line} & {"Cc", "Cs", "Zl", "Zp"}
        assert {c for c in line if unicodedata.category(c) == "Cf"} <= {"\u200c", "\u200d"}
    assert not FOLDS.search(one_line(text, most))
    assert is_cut == (len(text.encode(errors="replace")) > most)


def outcome(find: Callable[[str], Any], text: str) -> str:
    try:
        return json.dumps(find(text))
    except ValueError as error:
        return f"! {error}"


def table(known: list[str]) -> Iterator[str]:
    """Yield each text with the JSON in it, and the JSON for an output type."""
    for story in "\n".join(known).split("\n\n"):
        lines = [line for line in story.splitlines() if line[0] in "#|"]
        text = "\n".join(line[2:].replace("␍", "\r") for line in lines[1:])
        yield from lines
        yield f"json: {outcome(json_of, text)}"
        yield f"typed: {outcome(json_within, text)}"
        yield ""


def test_json_is_found_as_in_the_table(printed: Any) -> None:
    printed("json_texts.txt", table)


MANY = 200_000
HOSTILE = {
    "open braces": "{" * MANY,
    "keys": '{"a":' * MANY,
    "small objects": '{"a":1}' * MANY,
    "quotation marks": '{"' + '\\"' * MANY,
    "lines that open a text": '{"\n' * MANY,
    "fences": "```json\n" * MANY,
    "space before backticks": ("\n" + " " * 100 + "x") * (MANY // 100),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("look", [json_of, json_within])
def test_search_is_linear(text, look):
    began = time.process_time()

    with suppress(ValueError):
        look(text)

    assert time.process_time() - began < 2  # milliseconds, if it is linear; minutes, if it is not


def issued_as(expression: str) -> list[str]:
    """Return the ID that a response with this value has issued. A user can give the same texts."""
    value = eval(expression)  # noqa: S307 - our own
    try:
        issued = issued_kickoff_id(value)
    except ValueError as error:
        assert "kickoff_id" in str(error)  # noqa: PT017 - an outcome among others
        issued = "none"
    if issued != value:
        with pytest.raises(InvalidKickoffId) as caught:
            checked_kickoff_id(value)
        assert len(str(caught.value).encode()) < 500
        assert caught.value.cost is Cost.UNKNOWN
    return [issued if len(issued) < 50 else f"{len(issued)} characters"]


def test_ids_are_those_of_the_table(tabulated: Any) -> None:
    tabulated("kickoff_ids.txt", 1, issued_as)
