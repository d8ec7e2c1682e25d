"""
Table of outcomes: the facts that each row ends with on Airflow 3.3.

    python -m tests.faults.outcomes FACTS...

writes facts into the table that ``pytest tests/faults --record-facts FACTS`` has recorded. A cell that differs
between two recordings of a row becomes ``*``, as does one that was ``*`` before: it depends on timing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("outcomes.txt")
COLUMNS = ("errors", "cost", "record", "kickoffs", "started by", "xcoms")
ANY = "*"
NOTHING = "-"
# A row that no recording has reached yet.
UNRECORDED = (ANY,) * len(COLUMNS)

Cells = tuple[str, ...]


def outcomes() -> dict[str, Cells]:
    """Return the cells of each row."""
    _, *lines = TABLE.read_text().splitlines()
    parts = ([part.strip() for part in line.split("|")] for line in lines)
    return {row: tuple(cells) for row, *cells in parts}


def cells_of(facts: Mapping[str, Any]) -> Cells:
    """Return the cells that show these facts."""
    return tuple(_cell(facts[column]) for column in COLUMNS)


def check_outcome(row: str, facts: Mapping[str, Any]) -> None:
    """Compare the facts of a row with its line in the table."""
    known = outcomes().get(row)
    if known is None:
        raise AssertionError(
            f"{TABLE.name} has no line for {row}. To add it, play the row with --record-facts FILE, "
            "run `python -m tests.faults.outcomes FILE`, and read the new line."
        )
    found = cells_of(facts)
    differing = [
        f"{column}: {now}, not {before}"
        for column, before, now in zip(COLUMNS, known, found, strict=True)
        if before not in {ANY, now}
    ]
    assert not differing, f"{TABLE.name} has another outcome of {row}: {'; '.join(differing)}"


def merged(known: Mapping[str, Cells], recorded: Iterable[Mapping[str, Any]]) -> dict[str, Cells]:
    """Return the table with the cells of these recordings."""
    found: dict[str, Cells] = {}
    for facts in recorded:
        row, cells = facts["row"], cells_of(facts)
        found[row] = _agreed(found.get(row, cells), cells)
    before = {row: cells for row, cells in known.items() if cells != UNRECORDED}
    for row in found.keys() & before.keys():
        kept = (ANY if was == ANY else now for was, now in zip(before[row], found[row], strict=True))
        found[row] = tuple(kept)
    return {**known, **found}


def text(table: Mapping[str, Cells]) -> str:
    """Return the table as it is kept: one line for each row and way, in columns."""
    lines = [("row", *COLUMNS), *((row, *table[row]) for row in sorted(table))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)


def _cell(fact: Any) -> str:
    if isinstance(fact, list | tuple):
        return ", ".join(map(_cell, fact)) or NOTHING
    return NOTHING if fact is None else str(fact)


def _agreed(one: Cells, other: Cells) -> Cells:
    return tuple(a if a == b else ANY for a, b in zip(one, other, strict=True))


def main(files: Iterable[str]) -> None:
    """Write the table from recorded facts. Rows that are gone lose their line."""
    from tests.faults.table import all_rows

    recorded = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    table = merged(outcomes() if TABLE.exists() else {}, recorded)
    ids = {row.dag_id for row in all_rows() if not (row.mapped or row.batch)}
    TABLE.write_text(text({row: table.get(row, UNRECORDED) for row in ids}))


if __name__ == "__main__":
    main(sys.argv[1:])
