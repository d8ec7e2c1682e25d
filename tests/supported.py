"""Which Airflow the tests run on, and what the documentation says that it can do."""

from __future__ import annotations

import re
from pathlib import Path

from airflow import __version__

AIRFLOW = tuple(int(part) for part in __version__.split(".")[:2])
_PAGE = Path(__file__).parents[1] / "docs" / "versions.md"


def has(feature: str) -> bool:
    """Return what the table of features says of this Airflow."""
    table = re.findall(r"^\| (.*) \|$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    versions, *rows = [line.split(" | ") for line in table]
    (row,) = (row for row in rows if row[0].startswith(feature))
    return row[[*versions].index(".".join(map(str, AIRFLOW)))] == "yes"
