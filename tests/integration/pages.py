"""The README and the pages of the documentation, and what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/[!_]*/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("tests/faults/cases/*.md"),
    )
}

README = "README.md"
RUN_A_CREW = "docs/run-a-crew.md"
MIGRATING = "docs/choose.md"
QUICKSTART = "docs/quickstart.md"
RECIPES = "docs/recipes.md"
# A link to a file of example_dags, alone on its line, on a page that contains the file.
SHOWN_FILE = re.compile(
    r"^\[(example_dags/\S+\.py)\]\((?:\.\./)+\1\)\n\n```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)
# Start of a block that shows a result.
A_RESULT = '{"kickoff_id"'


def is_dag(shown: str) -> bool:
    """Whether a block of Python is a whole DAG file."""
    return re.search(r"^(with DAG\(|@dag\()", shown, re.MULTILINE) is not None


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page that are in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


def anywhere(language: str, containing: str) -> str:
    """Return the one block of all pages with this in it."""
    (found,) = (text for page in PAGES for text in blocks(page, language) if containing in text)
    return found


def wherever(language: str, containing: str) -> list[ParameterSet]:
    """Return the blocks of all pages with this in them, as parameters of a test."""
    found = [
        pytest.param(text, id=page) for page in PAGES for text in blocks(page, language) if containing in text
    ]
    assert found, containing
    return found


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without the first two lines."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGES[page], re.DOTALL | re.MULTILINE)
    assert section, heading
    return rows(section[1])


def rows(text: str) -> list[list[str]]:
    """Return the cells of the first table in a text, without the first two lines."""
    (first, *_) = re.split(r"\n\n", text[text.index("\n|") :].strip())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in first.splitlines()[2:]]
