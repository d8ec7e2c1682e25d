"""The documentation shows the rows as they are played."""

from __future__ import annotations

import pytest

from tests.faults.table import FOLDER, pages

pytestmark = pytest.mark.core


def test_the_tables_are_those_of_the_rows():
    written = {path: path.read_text() for path in FOLDER.iterdir()}

    assert written == pages(), "write them anew: make fault-table"
