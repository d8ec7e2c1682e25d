"""The page of fault cases, in ``cases``, shows the rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path

import pytest

from tests.faults.rows import ANY, ROWS, Row

pytestmark = pytest.mark.core

_HEADER = ("", "| Fault | Mode | Outcome | Cost |", "|---|---|---|---|")


def page(known: list[str]) -> Iterator[str]:
    """Yield the lines of the page: its introduction as it is, and a section for each module of rows."""
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"{__package__}.{path.stem}")
    yield from known[: next(number for number, line in enumerate(known) if line.startswith("## "))]
    for title, rows in groupby(sorted(ROWS, key=_title), key=_title):
        yield from (f"## {title}", *_HEADER, *_table([*rows]), "")


def _title(row: Row) -> str:
    return str(sys.modules[row.section].__doc__).strip().rstrip(".")


def _table(rows: list[Row]) -> Iterator[str]:
    """Yield one line for all modes of a row with the same outcome."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        ends = row.ends
        outcome = (
            f"**{ends.state}** in attempt {ends.tries}",
            f"kickoffs: {ends.kickoffs}",
            f"XCom: {ends.xcom}",
            f"execution: {ends.crew}",
        )
        cost = "" if row.cost in {"", ANY} else f"`{row.cost}`"
        about = "<br>".join(filter(None, [cost, row.why]))
        grouped.setdefault((row.title, "<br>".join(outcome), about), []).append(row.way)
    for (title, ends_in, about), ways in grouped.items():
        yield f"| {title} | {', '.join(ways)} | {ends_in} | {about} |"


def test_page_shows_the_rows(printed):
    printed("cases/README.md", page)
