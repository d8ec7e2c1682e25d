"""Finding JSON in the text of a crew, however long and odd it is."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.client.models import doubt_about, json_of, json_within

REPORT = {"title": "Ferries", "ports": ["Kiel", "Oslo"]}
SHORT = {"title": "F"}
LONG, SHORTER = json.dumps(REPORT), json.dumps(SHORT)
NOTHING = "JSON"


def fenced(text: str, kind: str = "json", ticks: str = "```") -> str:
    return f"{ticks}{kind}\n{text}\n{ticks}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(LONG, REPORT, id="all of it"),
        pytest.param("7", 7, id="a number"),
        pytest.param(fenced(LONG), REPORT, id="block"),
        pytest.param(fenced(LONG, ticks="`````"), REPORT, id="block of five backticks"),
        pytest.param(f"Here it is:\r\n```json\r\n{LONG}\r\n```\r\nRead it.", REPORT, id="block between sentences"),
        pytest.param(f"```json\n{LONG}", REPORT, id="block that nothing closes"),
        pytest.param(
            fenced(json.dumps({"code": "```js\n1\n```"})), {"code": "```js\n1\n```"}, id="fences in a text"
        ),
    ],
)
def test_json_and_json_blocks_are_found(text: str, found: Any) -> None:
    assert json_of(text) == found
    assert json_within(text) == found
    assert doubt_about(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(fenced(LONG, ""), id="a block that does not say that it is JSON"),
        pytest.param(f"{fenced(LONG)}\n{fenced(SHORTER)}", id="two blocks"),
        pytest.param(f"Here it is: {LONG} Read it.", id="between sentences"),
        pytest.param(f"```json {LONG} ```", id="backticks within a line"),
    ],
)
def test_ambiguous_json_counts_only_for_an_output_type(text: str) -> None:
    with pytest.raises(ValueError, match=r"\b1\b.*\b\d+\b"):
        json_of(text)
    assert json_within(text) == REPORT
    assert doubt_about(text) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(f"{LONG} or {SHORTER}", REPORT, id="the first"),
        pytest.param(f"{fenced(SHORTER)}\n{LONG}", SHORT, id="a block that is said to be JSON, before all else"),
        pytest.param(f"{fenced(SHORTER)}\n{fenced(LONG)}", REPORT, id="the longest block"),
        pytest.param(f"{fenced(LONG, '')}\n{fenced(SHORTER)}", SHORT, id="no block that says nothing"),
        pytest.param('{"a": "\\"}"} }', {"a": '"}'}, id="quotation marks in texts"),
        pytest.param('{"a": "\\\\"} }', {"a": "\\"}, id="backslashes in texts"),
        pytest.param("Matrix: [[1, 2], [3, 4]].", [[1, 2], [3, 4]], id="a matrix"),
    ],
)
def test_first_json_in_prose_counts(text: str, found: Any) -> None:
    assert json_within(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", NOTHING, id="nothing"),
        pytest.param("Ferries cross.", NOTHING, id="prose"),
        pytest.param('{"a": 1', r"delimiter.*\b1\b.*\b8\b", id="cut off"),
        pytest.param(f'{{"a": {LONG},}} {SHORTER}', r"\b1\b.*\b\d+\b", id="broken, around another"),
        pytest.param("So: {'a': 1}.", r"double quotes.*\b1\b.*\b6\b", id="Python"),
        pytest.param("[" * 100 + "]" * 100, "64", id="lists in lists"),
        pytest.param(f"[[{'9' * 5000}]]", "limit", id="a number that is too long"),
        pytest.param('{"secret": s3cr3t}', r"\b1\b.*\b12\b", id="a value that is not shown"),
    ],
)
def test_error_names_the_place(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        json_within(text)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        pytest.param("Ferries cross.", "", id="prose"),
        pytest.param("[1] A footnote", "", id="a footnote"),
        pytest.param("{'a': 1}", r"double quotes.*\b1\b.*\b2\b", id="Python"),
        pytest.param(' \n[{"a": 1}', r"\b2\b.*\b10\b", id="cut off"),
        pytest.param(f"{LONG} I hope this helps.", r"Extra data.*\b1\b.*\b\d+\b", id="more after it"),
        pytest.param(fenced("Ferries cross."), "", id="prose in a block"),
    ],
)
def test_broken_json_is_a_doubt(text: str, doubt: str) -> None:
    assert re.search(doubt, doubt_about(text)) if doubt else doubt_about(text) == ""


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
