"""The documentation shows the rows as they are played."""

from __future__ import annotations

import pytest

from tests.faults.table import FOLDER, pages
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not (3, 0) <= AIRFLOW < (3, 4), reason="the tables tell the tries and words of 3.3"),
]


def test_the_tables_are_those_of_the_rows():
    written = {path: path.read_text() for path in FOLDER.iterdir()}

    assert written == pages(), "write them anew: make fault-table"
