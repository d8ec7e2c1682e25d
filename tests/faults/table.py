"""
Writes the pages of fault cases from the rows that the tests play.

    python -m tests.faults.table
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.faults.outcomes import ANY, NOTHING, UNRECORDED, outcomes
from tests.faults.rows import ROWS, Ends, Row

FOLDER = Path(__file__).parent / "cases"
_INTRO = (
    "Each row is a test that causes the fault in a real Airflow. [Fault cases](README.md) lists the pages, and\n"
    "explains the columns.\n"
)
_HEADER = "| Fault | Mode | Outcome | Error and cost |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Page:
    """One page, with a section for each of these modules of tests."""

    title: str
    modules: tuple[str, ...]


# File names, in the order of the pages.
PAGES = {
    "1-kickoff": Page(
        "At the kickoff",
        ("test_service_at_kickoff", "test_settling", "test_cleared_kickoffs"),
    ),
    "2-service": Page("The crew's service", ("test_service_while_waiting", "test_token")),
    "3-crew": Page(
        "The crew",
        ("test_crew_ends", "test_people", "test_answered_in_airflow"),
    ),
    "4-user": Page("Actions of a user", ("test_user", "test_cancel", "test_commands")),
    "5-processes": Page("Workers and triggerers", ("test_worker", "test_signals", "test_triggerer")),
    "6-airflow": Page("Scheduler, database and API server", ("test_airflow_down", "test_api_server")),
    "7-celery": Page("Celery", ("test_celery",)),
    "8-batch": Page("Batches", ("test_batch_faults",)),
}


def pages() -> dict[Path, str]:
    """Return the pages. Raise LookupError if no page names a module with rows."""
    sections = {name: import_module(f"{__package__}.{name}") for page in PAGES.values() for name in page.modules}
    unnamed = {row.section for row in all_rows()} - {module.__name__ for module in sections.values()}
    if unnamed:
        raise LookupError(f"no page of tests/faults/table.py names {', '.join(sorted(unnamed))}")
    titles = {name: (module.__doc__ or "").strip().rstrip(".") for name, module in sections.items()}
    return {FOLDER / f"{file}.md": _page(page, titles) for file, page in PAGES.items()}


def all_rows() -> list[Row]:
    """Return the rows of all modules."""
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"{__package__}.{path.stem}")
    return ROWS


def _page(page: Page, titles: dict[str, str]) -> str:
    if len(page.modules) == 1:
        return f"# {page.title}\n\n{_INTRO}\n{_table(page.modules[0])}"
    sections = "".join(f"\n## {titles[name]}\n\n{_table(name)}" for name in page.modules)
    return f"# {page.title}\n\n{_INTRO}{sections}"


def _table(module: str) -> str:
    rows = (row for row in ROWS if row.section == f"{__package__}.{module}")
    return _HEADER + "".join(_lines(rows))


def _lines(rows: Iterable[Row]) -> list[str]:
    """Return one line for all modes of a row with the same outcome."""
    recorded = outcomes()
    grouped: dict[tuple[str, str, Ends, tuple[str, ...]], list[str]] = {}
    for row in rows:
        errors, cost, *_ = recorded.get(row.dag_id, UNRECORDED)
        grouped.setdefault((row.title, row.why, row.ends, _failures(errors, cost)), []).append(row.way)
    return [_line(title, why, ends, failures, ways) for (title, why, ends, failures), ways in grouped.items()]


def _line(title: str, why: str, ends: Ends, failures: tuple[str, ...], ways: list[str]) -> str:
    cells = [title, ", ".join(ways), "<br>".join(_outcome(ends)), "<br>".join(filter(None, [*failures, why]))]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _failures(errors: str, cost: str) -> tuple[str, ...]:
    """Return the errors of the failed attempts, and the cost in the last one."""
    if errors == ANY:
        return ()
    kinds = errors.split(", ")
    failed = [(number, kind) for number, kind in enumerate(kinds, 1) if kind != NOTHING]
    told = [f"attempt {number}: `{kind}`" if len(kinds) > 1 else f"`{kind}`" for number, kind in failed]
    return (*told, *([f"cost: `{cost}`"] if cost not in {ANY, NOTHING} else []))


def _outcome(ends: Ends) -> list[str]:
    return [
        f"**{ends.state}** in attempt {ends.tries}",
        f"kickoffs: {ends.kickoffs}",
        f"XCom: {ends.xcom}",
        f"execution: {ends.crew}",
    ]


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
