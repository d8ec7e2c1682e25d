"""
Finding JSON in the text of a crew, however long and odd it is.

``json_texts.txt`` has texts. Below each are its JSON, the JSON for an output type, and the doubt that is logged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.client.models import doubt_about, json_of, json_within


def outcome(find: Callable[[str], Any], text: str) -> str:
    try:
        return json.dumps(find(text))
    except ValueError as error:
        return f"! {error}"


def table(known: list[str]) -> Iterator[str]:
    """Yield each text with the JSON in it, the JSON for an output type, and the doubt that the log has."""
    for story in "\n".join(known).split("\n\n"):
        lines = [line for line in story.splitlines() if line[0] in "#|"]
        text = "\n".join(line[2:].replace("␍", "\r") for line in lines[1:])
        yield from lines
        yield f"json: {outcome(json_of, text)}"
        yield f"typed: {outcome(json_within, text)}"
        yield from [f"doubt: {doubt}"] if (doubt := doubt_about(text)) else []
        yield ""


def test_json_is_found_as_in_the_table(printed: Any) -> None:
    printed("json_texts.txt", table)


def fenced(text: str) -> str:
    return f"```json\n{text}\n```"


@hypothesis.given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=12,
    ),
    around=st.tuples(*2 * [st.text(alphabet="Words, \n.:;!?()1", max_size=20)]),
    indent=st.sampled_from([None, 2]),
)
def test_any_object_in_any_text_is_found(value: Any, around: tuple[str, str], indent: Any) -> None:
    wanted = json.loads(json.dumps({"value": value}).replace("\\u0000", "\\ufffd"))
    before, after = around

    assert json_within(f"{before}{json.dumps(wanted, indent=indent)}{after}") == wanted
    assert json_within(f"{before}\n{fenced(json.dumps(wanted, indent=indent))}\n{after}") == wanted


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
@pytest.mark.parametrize("look", [json_of, json_within, doubt_about])
def test_search_is_linear(text, look):
    began = time.process_time()

    with suppress(ValueError):
        look(text)

    assert time.process_time() - began < 2  # milliseconds, if it is linear; minutes, if it is not
