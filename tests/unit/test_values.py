"""Values of plain functions, as in ``values/*.txt``. To add an expression, write it into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

TABLES = sorted(Path(__file__).with_name("values").glob("*.txt"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_values_are_those_of_the_table(evaluated: Any, path: Path) -> None:
    evaluated(f"values/{path.name}")
