"""The page of fault cases matches the rows."""

from __future__ import annotations

import pytest

from tests.faults.table import PAGE, page

pytestmark = pytest.mark.core


def test_page_shows_the_rows():
    assert PAGE.read_text() == page(), "write it again: make fault-table"
