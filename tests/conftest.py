"""An Airflow home for every test run, set before anything imports Airflow; and reports that can be sent."""

from __future__ import annotations

import ast
import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from pprint import saferepr
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["airflow_provider_crew.local.pytest_plugin"]

# How long an example takes, and how long one to think of, says more about the machine than about the code.
hypothesis.settings.register_profile(
    "whatever-the-machine",
    # `make test-fuzz` tries more.
    max_examples=2_000 if "CREW_FUZZ_CASES" in os.environ else 25,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("whatever-the-machine")

# They start an Airflow, a browser or a crew, for which a busy machine takes minutes.
_SLOW = [Path(__file__).with_name(name) for name in ("agents", "crews", "faults", "system")]

# A shell has what it runs in the background ignore it, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_HOME = tempfile.mkdtemp(prefix="airflow-provider-crew-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ |= {
    "AIRFLOW_HOME": _HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}


# Importing Airflow leaves no garbage, but looking for some takes a second, and later a fifth of one each time.
gc.disable()


def pytest_collection_finish() -> None:
    """Spare the garbage collector what has been imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace pauses and limits of the package until the test ends."""

    def replace(**seconds: float) -> None:
        for name, value in seconds.items():
            monkeypatch.setattr(f"airflow_provider_crew.client.timing.{name.upper()}", value)

    return replace


@pytest.fixture
def printed(request: pytest.FixtureRequest) -> Callable[..., None]:
    """
    Compare a table beside a test, which people read, with what code makes of its lines.

    Only lines that ``count`` on every Airflow are compared. ``pytest --write-tables`` writes a table again.
    """

    def compare(
        name: str, make: Callable[[list[str]], Iterable[str]], counts: Callable[[str], bool] = lambda _: True
    ) -> None:
        table = request.path.parent / name
        known = table.read_text(encoding="utf-8").splitlines()
        now = "\n".join(make(known)).rstrip("\n")
        if request.config.getoption("--write-tables"):
            table.write_text(f"{now}\n", encoding="utf-8")
        else:
            # Line by line: explaining how long texts differ takes a minute.
            assert [*filter(counts, now.splitlines())] == [*filter(counts, known)]

    return compare


@pytest.fixture
def evaluated(printed: Callable[..., None]) -> Callable[..., None]:
    """
    Compare a table of expressions beside a test. The line below each is its value, or the error that it raises.

    An iterator has a line for each of its texts. Imports and assignments in a table are for the expressions below
    them. It may use ``names``.
    """

    def table(known: list[str], names: dict[str, Any]) -> Iterator[str]:
        for line in known:
            if not line.startswith("    "):
                yield line
                if isinstance(code := next(iter(ast.parse(line).body), None), ast.Expr):
                    yield from (f"    {each}" for each in _value(line, names))
                elif code:
                    exec(line, names)  # noqa: S102 - our own

    return lambda name, **names: printed(name, lambda known: table(known, names))


def _value(expression: str, names: dict[str, Any]) -> list[str]:
    try:
        value = eval(expression, names)  # noqa: S307 - our own
        return [*value] if isinstance(value, Iterator) else [saferepr(value)]
    except (NameError, TypeError):
        raise
    except Exception as error:  # noqa: BLE001 - a value among others
        cost = f" (cost: {error.cost})" if hasattr(error, "cost") else ""
        return [f"! {type(error).__name__}{cost}: {' '.join(str(getattr(error, 'event', error)).split())}"]


@pytest.fixture
def tabulated(printed: Callable[..., None]) -> Callable[..., None]:
    """
    Compare a table beside a test. A function makes the other columns from the cells of the first ``given``.

    The last cell of a row may have further lines, which are indented.
    """

    def table(known: list[str], given: int, others: Callable[..., Iterable[str]]) -> Iterator[str]:
        lines = [line for line in known if " | " in line or not line.startswith("    ")]
        cells = [[each.strip() for each in line.split("|")[:given]] if _is_row(line) else [] for line in lines]
        rows = [[*row, *others(*row)] if row else [] for row in cells]
        widths = [max(map(len, column)) for column in zip(*filter(None, rows), strict=True)]
        for line, row in zip(lines, rows, strict=True):
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            yield " | ".join(padded).rstrip() if row else line

    return lambda name, given, others: printed(name, lambda known: table(known, given, others))


def _is_row(line: str) -> bool:
    return " |" in line and line[0] != "#"  # also one whose other columns are still to be written


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = ("local", "celery", "edge")
    parser.addoption("--executor", choices=choices, default="local", help="what runs Airflow's tasks")
    parser.addoption("--write-tables", action="store_true", help="write the tables beside tests again")
    parser.addoption("--golden-into", type=Path, help="folder to which tests/golden writes what is stored today")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent in _SLOW:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what no encoding takes: bad input is full of it, and tests may run in several processes."""
    report = yield
    report.sections = [(title, _escaped(text)) for title, text in report.sections]
    if report.failed and (shown := _escaped(report.longreprtext)) != report.longreprtext:
        report.longrepr = shown
    return report


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
