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
from contextlib import ExitStack
from pathlib import Path
from pprint import saferepr
from typing import Any

import hypothesis
import pytest

from airflow_provider_crew.client.timing import replaced

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


def pytest_collection_finish() -> None:
    """Spare the garbage collector what has been imported: looking through Airflow takes a fifth of a second."""
    gc.freeze()


@pytest.fixture
def timing() -> Iterator[Callable[..., None]]:
    """Replace pauses and limits of the package until the test ends."""
    with ExitStack() as stack:
        yield lambda **seconds: stack.enter_context(replaced(**seconds))


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

    Imports and assignments in a table are for the expressions below them. It may use ``names``.
    """

    def table(known: list[str], names: dict[str, Any]) -> Iterator[str]:
        for line in known:
            if not line.startswith("    "):
                yield line
                if isinstance(code := next(iter(ast.parse(line).body), None), ast.Expr):
                    yield f"    {_value(line, names)}"
                elif code:
                    exec(line, names)  # noqa: S102 - our own

    return lambda name, **names: printed(name, lambda known: table(known, names))


def _value(expression: str, names: dict[str, Any]) -> str:
    try:
        return saferepr(eval(expression, names))  # noqa: S307 - our own
    except (NameError, TypeError):
        raise
    except Exception as error:  # noqa: BLE001 - a value among others
        cost = f" (cost: {error.cost})" if hasattr(error, "cost") else ""
        return f"! {type(error).__name__}{cost}: {' '.join(str(getattr(error, 'event', error)).split())}"


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
