"""The installed Airflow, and its column in the table of features on the compatibility page."""

from __future__ import annotations

import re
from pathlib import Path

from airflow import __version__

AIRFLOW = tuple(int(part) for part in __version__.split(".")[:2])
_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "compatibility.md"
_OF_ITS_OWN = _ROOT / "requirements" / f"airflow-{AIRFLOW[0]}.{AIRFLOW[1]}.txt"
# Pinned environment of this Airflow. The newest one uses the environment for development.
LOCK = _OF_ITS_OWN if _OF_ITS_OWN.exists() else _ROOT / "requirements" / "dev.txt"


def has(feature: str) -> bool:
    """Whether the table of features has a yes for this Airflow, or for the newest one if it lacks this one."""
    (table,) = re.findall(r"^\| Feature \|(?:.*\n)+?\n", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    versions, *rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line]
    (row,) = (row for row in rows if row[0].startswith(feature))
    here = ".".join(map(str, AIRFLOW))
    return row[versions.index(here) if here in versions else -1] == "yes"


def recipes() -> list[Path]:
    """Return the recipes that this Airflow can load."""
    return _loadable("example_dags/recipes")


def examples() -> list[Path]:
    """Return the examples that this Airflow can load."""
    return _loadable("example_dags")


def _loadable(folder: str) -> list[Path]:
    return [path for path in (_ROOT / folder).glob("*.py") if _needed(path) <= AIRFLOW]


def _needed(path: Path) -> tuple[int, ...]:
    """Return the Airflow that a DAG's docstring names."""
    named = re.search(r"^Needs Airflow (\d+)\.(\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return tuple(map(int, named.groups())) if named else ()
