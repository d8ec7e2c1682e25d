"""What the benchmarks say: figures with their spread, tables, and the file that keeps them."""

from __future__ import annotations

import os
import platform
import re
import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RESULTS = Path(__file__).parent / "RESULTS.md"

_INTRODUCTION = """\
# Benchmark results

`make bench` writes this file. It compares this provider with the alternatives that a user would pick. A figure is
the median of its rounds, with the lowest and the highest in brackets. Compare figures only within one table,
because another machine or another day changes all of them together.
"""
_COMPARED = (
    "apache-airflow",
    "aiohttp",
    "airflow-provider-crew",
    "apache-airflow-providers-databricks",
    "apache-airflow-providers-dbt-cloud",
    "apache-airflow-providers-http",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of several rounds with its spread."""

    median: float
    low: float
    high: float
    unit: str = ""

    @classmethod
    def of(cls, rounds: Iterable[float], unit: str = "") -> Self:
        """Sum up what the rounds measured."""
        measured = sorted(rounds)
        return cls(statistics.median(measured), measured[0], measured[-1], unit)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if _digits(self.low) == _digits(self.high):
            return f"{_digits(self.median)}{unit}"
        return f"{_digits(self.median)}{unit} ({_digits(self.low)} to {_digits(self.high)})"


@dataclass(frozen=True, slots=True)
class Table:
    """One table, with a paragraph that says how it was measured."""

    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __str__(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
        return f"### {self.title}\n\n{self.text}\n\n{table}\n"


def section(title: str, tables: Iterable[Table]) -> str:
    """Return what one benchmark has to say, after a line on where and with what it was measured."""
    return "\n".join([f"## {title}\n", f"{_circumstances()}\n", *map(str, tables)])


def keep(section: str, results: Path = RESULTS) -> None:
    """Replace the older version of a section, and leave the others as they are."""
    kept = _sections(results.read_text(encoding="utf-8") if results.exists() else "")
    kept[_heading(section)] = section.strip()
    sections = [kept[heading] for heading in sorted(kept, key=_number)]
    results.write_text("\n\n".join([_INTRODUCTION.strip(), *sections]) + "\n", encoding="utf-8")


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return {_heading(part): part.strip() for part in parts}


def _heading(section: str) -> str:
    return section.partition("\n")[0]


def _number(heading: str) -> tuple[int, str]:
    found = re.search(r"\d+", heading)
    return int(found[0]) if found else 0, heading


def _circumstances() -> str:
    day = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.release()}"
    versions = ", ".join(f"{name} {found}" for name in _COMPARED if (found := _version(name)))
    return f"{day}. {machine}. Python {platform.python_version()}, {versions}."


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        told = ""
    model = re.search(r"^model name\s*:\s*(.+)$", told, flags=re.MULTILINE)
    return model[1] if model else platform.machine()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _cell(value: object) -> str:
    return _digits(value) if isinstance(value, float) else str(value).replace("|", "\\|")


def _digits(value: float) -> str:
    """Show three significant digits: more would be noise."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    return f"{value:.3g}"
