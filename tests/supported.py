"""Which Airflow the tests run on, and what the documentation says that it can do."""

from __future__ import annotations

import re
from pathlib import Path

from airflow import __version__

AIRFLOW = tuple(int(part) for part in __version__.split(".")[:2])
_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "versions.md"
_OF_ITS_OWN = _ROOT / "requirements" / f"airflow-{AIRFLOW[0]}.{AIRFLOW[1]}.txt"
# What the environment of this Airflow is pinned to; that of the newest is what everything is developed with.
LOCK = _OF_ITS_OWN if _OF_ITS_OWN.exists() else _ROOT / "requirements" / "dev.txt"

# The recipes that an older Airflow cannot load, by their rows in the table of features.
_NEED = {"crew_approval": "The recipe [An approval]", "crew_retry_policy": "The recipe [A retry policy]"}


def has(feature: str) -> bool:
    """Return what the table of features says of this Airflow, or of its newest where it does not know this one."""
    table = re.findall(r"^\| (.*) \|$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    versions, *rows = [line.split(" | ") for line in table]
    (row,) = (row for row in rows if row[0].startswith(feature))
    here = ".".join(map(str, AIRFLOW))
    return row[versions.index(here) if here in versions else -1] == "yes"


def recipes() -> list[Path]:
    """Return the recipes that this Airflow can load."""
    paths = (_ROOT / "example_dags" / "recipes").glob("*.py")
    return [path for path in paths if path.stem not in _NEED or has(_NEED[path.stem])]
