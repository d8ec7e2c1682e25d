"""
Writes the page of fault cases from the rows that the tests play.

    python -m tests.faults.table
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import groupby
from pathlib import Path

from tests.faults.rows import ANY, ROWS, Row

PAGE = Path(__file__).parent / "cases" / "README.md"
_HEADER = "| Fault | Mode | Outcome | Cost |\n|---|---|---|---|\n"


def page() -> str:
    """Return the page: its introduction as it is, and a section for each module of rows."""
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"{__package__}.{path.stem}")
    introduction = PAGE.read_text().partition("\n## ")[0]
    sections = groupby(sorted(ROWS, key=_title), key=_title)
    return "\n".join(
        [introduction.rstrip() + "\n", *(f"## {title}\n\n{_table([*rows])}" for title, rows in sections)]
    )


def _title(row: Row) -> str:
    return str(sys.modules[row.section].__doc__).strip().rstrip(".")


def _table(rows: list[Row]) -> str:
    """Return one line for all modes of a row with the same outcome."""
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
    lines = ([title, ", ".join(ways), outcome, about] for (title, outcome, about), ways in grouped.items())
    return _HEADER + "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    PAGE.write_text(page())
