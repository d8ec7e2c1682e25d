"""The documentation shows the rows as they are played."""

from __future__ import annotations

import pytest

from tests.faults.table import PAGE, page

pytestmark = pytest.mark.core


def test_the_table_is_that_of_the_rows():
    assert PAGE.read_text() == page(), "write it anew: make fault-table"
