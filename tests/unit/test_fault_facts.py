"""The table of outcomes finds what differs from it, and takes up what was recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults import outcomes
from tests.faults.outcomes import UNRECORDED, cells_of, check_outcome, merged, text

FACTS: dict[str, Any] = {
    "row": "refused_sync",
    "errors": ["Unreachable", None],
    "cost": "none",
    "record": "delivered",
    "kickoffs": [None, 200],
    "started by": [2],
    "xcoms": [],
}
CELLS = ("Unreachable, -", "none", "delivered", "-, 200", "2", "-")


@pytest.fixture
def table(tmp_path, monkeypatch):
    def write(*cells: str) -> None:
        path = tmp_path / "outcomes.txt"
        path.write_text(text({"refused_sync": cells}))
        monkeypatch.setattr(outcomes, "TABLE", path)

    return write


def test_facts_are_shown_in_cells():
    assert cells_of(FACTS) == CELLS


@pytest.mark.parametrize("cells", [CELLS, ("*", *CELLS[1:]), UNRECORDED])
def test_outcome_as_in_the_table_passes(table, cells):
    table(*cells)

    check_outcome("refused_sync", FACTS)


@pytest.mark.parametrize("column", range(len(CELLS)))
def test_outcome_that_differs_in_one_cell_fails(table, column):
    table(*CELLS[:column], "another", *CELLS[column + 1 :])

    with pytest.raises(AssertionError, match="another"):
        check_outcome("refused_sync", FACTS)


def test_row_without_a_line_fails_with_the_way_to_record_it(table):
    table(*CELLS)

    with pytest.raises(AssertionError, match="--record-facts"):
        check_outcome("another_row", FACTS)


def test_recording_replaces_cells_but_not_stars():
    before = {"refused_sync": ("*", "ended", *CELLS[2:]), "other": CELLS}

    assert merged(before, [FACTS]) == {"refused_sync": ("*", *CELLS[1:]), "other": CELLS}


def test_recording_fills_an_unrecorded_line():
    assert merged({"refused_sync": UNRECORDED}, [FACTS]) == {"refused_sync": CELLS}


def test_recordings_that_differ_leave_a_star():
    other = FACTS | {"kickoffs": [200]}

    assert merged({}, [FACTS, other, FACTS]) == {"refused_sync": (*CELLS[:3], "*", *CELLS[4:])}
