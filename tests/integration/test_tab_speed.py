"""How long the Crew tab takes to read what a crew wrote, in a Chromium without an Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dev.chromium import EXECUTABLE, Page
from tests.integration.tab_page import tab_page

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
]

# Nothing here takes half a second. A quadratic search of 200,000 spaces takes twenty.
LENGTH = 200_000
MOST_MS = 5_000

# What each construct begins with, what its search then has to pass, and what may keep it from fitting at last.
BEGINS = {
    "text": "a",
    "item": "- ",
    "numbered item": "1. ",
    "item in an item": "- a\n  - ",
    "heading": "# ",
    "quote": "> ",
    "row": "a|b\n|-|-|\n|",
    "line below a head": "a|b\n|-",
    "fence": "```\n",
    "code": "`",
    "label": "[",
    "address": "[a](https://a",
    "title": '[a](https://a "',
    "emphasis": "**",
    "rule": "---",
}
PASSES = {
    "spaces": " ",
    "tabs": "\t",
    "line separators": "\u2028",
    "paragraph separators": "\u2029",
    "carriage returns": "\r",
    "next lines": "\x85",
    "dashes": "-",
    "stars": "*a ",
    "underscores": " __a _b",
    "tildes": "~~a",
    "brackets": "[a](",
    "bars": "|-",
    "backticks": "`a",
    "hashes": "#",
    "angles": "> ",
    "addresses": "https://a(",
    "entities": "&amp;",
    "lines": "a\u2028b\n",
    "items": " - a\n",
}
ENDS = "a\u2028b"

# It stops at the first text that takes too long: others may take as long, and a test should not.
TIMED = """(async () => {
    const { Markdown } = await import("/markdown.js");
    const times = {};
    for (const [name, [begin, passed, end]] of Object.entries(%s)) {
        const source = begin + passed.repeat(Math.ceil(%d / passed.length)) + end;
        const began = performance.now();
        Markdown({ source });
        times[name] = performance.now() - began;
        if (times[name] > %d) break;
    }
    return times;
})()"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with tab_page() as opened:
        yield opened


@pytest.mark.parametrize("begin", BEGINS.values(), ids=BEGINS)
def test_no_text_of_a_crew_freezes_the_tab(page: Page, begin: str) -> None:
    texts = {name: (begin, passed, ENDS) for name, passed in PASSES.items()}

    times = page.evaluate(TIMED % (json.dumps(texts), LENGTH, MOST_MS))

    assert {name: took for name, took in times.items() if took > MOST_MS} == {}
    assert list(times) == list(PASSES)


DRAWN = """(async () => {
    const { Markdown } = await import("/markdown.js");
    const blocks = %s.map((source) => Markdown({ source }).children[0][0]);
    return blocks.map((block) => (block.type === "div" ? block.children[0].type : block.type));
})()"""


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("- a\u2028b", "ul"),
        ("1. a\u2028b", "ol"),
        ("# a\u2028b", "h4"),
        ("> a\u2028b", "blockquote"),
        *((f"a|b\n{line}\n1|2", "table") for line in ("|-|-|", "-|-", " :-: | - ", "|-")),
        *((f"a|b\n{line}\n1|2", "p") for line in ("| |", "|:|", "---", "-|x")),
    ],
)
def test_text_is_drawn_as_one_element(page: Page, text: str, element: str) -> None:
    assert page.evaluate(DRAWN % json.dumps([text])) == [element]
