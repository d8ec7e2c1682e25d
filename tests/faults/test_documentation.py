"""The pages and the table of outcomes match the rows."""

from __future__ import annotations

import pytest

from tests.faults.outcomes import TABLE, outcomes, text
from tests.faults.table import FOLDER, all_rows, pages
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(AIRFLOW != (3, 3), reason="the tables show the attempts of 3.3"),
]


def test_pages_show_the_rows():
    written = {path: path.read_text() for path in FOLDER.glob("[0-9]*.md")}

    assert written == pages(), "write them again: make fault-table"


def test_table_of_outcomes_has_a_line_for_each_row():
    table = outcomes()

    assert table.keys() == {row.dag_id for row in all_rows() if not (row.mapped or row.batch)}
    assert TABLE.read_text() == text(table), "write it again: python -m tests.faults.outcomes"
