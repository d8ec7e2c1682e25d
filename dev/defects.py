"""
Put known defects back, one at a time, and check that a test notices: ``make defects ARGS="suspended"``.

``defects.toml`` lists them, each with the changes that put it back today and the tests of which one must fail. The
command fails if a defect survives, or if the code that a change replaces is gone. Each defect gets a copy of the
package, so the checkout stays as it is.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
import tomllib
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[1]
_PACKAGE = "airflow_provider_crew"
_OPTIONS = ("--no-cov", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
# Their import takes most of the time of a short test, so it is done once, before the fork for each defect.
_SLOW = ("aiohttp", "airflow.sdk", "airflow.sdk.execution_time.task_runner", "hypothesis", "pydantic", "requests")
_HAS_AGENTS = find_spec("pydantic_ai") is not None


@dataclass(frozen=True, slots=True)
class Defect:
    """
    Defect of an earlier version.

    :param changes: File in the package, text to replace, and its replacement.
    :param tests: Tests below ``tests/``, of which one must fail.
    """

    name: str
    changes: list[list[str]]
    tests: list[str]

    @property
    def needs_agents(self) -> bool:
        """Whether the tests need the environment with Airflow's agents."""
        return self.tests[0].startswith("agents/")

    def put_back(self, package: Path) -> None:
        """Change a copy of the package."""
        for name, old, new in self.changes:
            code = (package / name).read_text(encoding="utf-8")
            if (times := code.count(old)) != 1:
                raise ValueError(f"{name} has {times} times what a change replaces:\n{old}")
            (package / name).write_text(code.replace(old, new), encoding="utf-8")


class _Failures:
    """Plugin that notes which tests have failed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that has failed."""
        if report.failed:
            self.names.append(report.nodeid)


def main(*words: str) -> int:
    """Try the defects of this environment whose names contain one of the words, or all."""
    began = time.monotonic()
    known = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["defect"]
    defects = [
        each
        for each in (Defect(**fields) for fields in known)
        if each.needs_agents == _HAS_AGENTS and (not words or any(word in each.name for word in words))
    ]
    tests = list(dict.fromkeys(test for defect in defects for test in defect.tests))
    # A test that fails anyway would seem to notice.
    jobs = [Defect("no defect", [], tests), *defects] if defects else []
    with TemporaryDirectory(prefix="defects-home-") as home:
        os.environ["AIRFLOW_HOME"] = home
        for name in _SLOW:
            import_module(name)
        with get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
            wrong = []
            for defect, (outcome, is_right) in zip(jobs, pool.imap(_outcome, jobs), strict=True):
                print(f"{defect.name}: {outcome}", flush=True)
                wrong += [] if is_right else [defect.name]
    print(f"{len(defects)} defects, {time.monotonic() - began:.0f} s. Wrong: {', '.join(wrong) or 'none'}")
    return int(bool(wrong))


def _outcome(defect: Defect) -> tuple[str, bool]:
    """Run the tests of a defect in this process. Return what came of it, and whether that is right."""
    with _copy() as folder:
        try:
            defect.put_back(folder / _PACKAGE)
        except ValueError as error:
            return str(error), False
        failures = _Failures()
        with redirect_stdout(io.StringIO()) as output:
            code = pytest.main([*_OPTIONS, *(f"tests/{test}" for test in defect.tests)], plugins=[failures])
    expected = pytest.ExitCode.TESTS_FAILED if defect.changes else pytest.ExitCode.OK
    if code == expected:
        return ", ".join(failures.names) or "all tests pass", True
    return ("NOT NOTICED" if code == pytest.ExitCode.OK else output.getvalue()[-3000:]), False


@contextmanager
def _copy() -> Iterator[Path]:
    """Provide a folder with a copy of the package and links to all else, from which this process imports."""
    with TemporaryDirectory(prefix="defect-") as name:
        folder = Path(name)
        for path in _ROOT.iterdir():
            if path.name != _PACKAGE and not path.name.startswith("."):
                (folder / path.name).symlink_to(path)
        shutil.copytree(_ROOT / _PACKAGE, folder / _PACKAGE)
        for loaded in [each for each in sys.modules if each.partition(".")[0] in {_PACKAGE, "tests"}]:
            del sys.modules[loaded]  # Airflow loads the metadata of each provider
        sys.path[:] = [name, *(path for path in sys.path if path not in {"", str(_ROOT)})]
        os.chdir(folder)
        yield folder
        os.chdir(_ROOT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
