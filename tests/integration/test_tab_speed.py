"""How long the Crew tab takes to read what a crew wrote, in a Chromium without an Airflow."""

from __future__ import annotations

import json

import pytest

from dev.chromium import Page

pytest_plugins = ["tests.integration.tab_page"]
pytestmark = pytest.mark.timeout(600)

# Nothing here takes half a second of a processor. A quadratic search of 200,000 spaces takes twenty.
LENGTH = 200_000
MOST_SECONDS = 5

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

READ = """(async () => {
    const { Markdown } = await import("/markdown.js");
    const [begin, passed, end] = %s;
    Markdown({ source: begin + passed.repeat(Math.ceil(%d / passed.length)) + end });
})()"""


def computed(page: Page) -> float:
    """Return the seconds of a processor that the page's main thread has had."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


@pytest.mark.parametrize("begin", BEGINS.values(), ids=BEGINS)
def test_no_text_of_a_crew_freezes_the_tab(page: Page, begin: str) -> None:
    page.call("Performance.enable", timeDomain="threadTicks")
    for name, passed in PASSES.items():
        before = computed(page)
        page.evaluate(READ % (json.dumps([begin, passed, ENDS]), LENGTH))
        assert computed(page) - before < MOST_SECONDS, name
