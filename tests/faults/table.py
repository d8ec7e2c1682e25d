"""
Writes the table of the documentation from the rows that the tests play.

    python -m tests.faults.table
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from itertools import groupby
from pathlib import Path

from tests.faults.rows import ROWS, Ends, Row

_HERE = Path(__file__).parent
PAGE = _HERE.parents[1] / "docs" / "what-happens-when.md"
_BEGIN = "<!-- written by tests/faults/table.py -->"
_HEADER = (
    "| when | the task waits | and ends as | tries | kickoffs | XCom holds | its log says | the crew |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def page() -> str:
    """Return the page as it should be: what was written by hand, and the table."""
    by_hand = PAGE.read_text().partition(_BEGIN)[0]
    return f"{by_hand}{_BEGIN}\n{_sections()}"


def _sections() -> str:
    modules = [import_module(f"{__package__}.{path.stem}") for path in sorted(_HERE.glob("test_*.py"))]
    titles = {module.__name__: (module.__doc__ or "").strip().rstrip(".") for module in modules}
    rows = sorted(ROWS, key=lambda row: list(titles).index(row.section))
    return "\n".join(
        f"\n## {titles[section]}\n\n{_HEADER}" + "".join(_lines(of_section))
        for section, of_section in groupby(rows, lambda row: row.section)
    )


def _lines(rows: Iterable[Row]) -> list[str]:
    """Return a line of the table for all ways of a row that end alike."""
    grouped: dict[tuple[str, str, Ends], list[str]] = {}
    for row in rows:
        grouped.setdefault((row.title, row.why, row.ends), []).append(row.way)
    return [_line(title, why, ends, ways) for (title, why, ends), ways in grouped.items()]


def _line(title: str, why: str, ends: Ends, ways: list[str]) -> str:
    said = " ".join(f"“{text.format(id='ID')}”" for text in ends.says)
    cells = [
        title,
        ", ".join(ways),
        ends.state,
        " or ".join(map(str, ends.possible_tries)),
        str(ends.kickoffs),
        ends.xcom,
        f"{said} {why}".strip(),
        ends.crew,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
