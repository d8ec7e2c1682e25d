"""
The suites on every supported Airflow and Python, and on a beta of the next Airflow: ``make matrix``.

Each pair has a locked environment of its own below ``.matrix``. What has passed there for the files as they are is
not run again, so that it can be stopped and gone on with. Tells all in one table at the end, also when stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).parents[1]
_HOME = _ROOT / ".matrix"
_DEVELOPED_WITH = "3.3"
# Which Pythons each Airflow supports, of those that this package does.
_PYTHONS = {
    "2.11": ("3.11", "3.12"),
    "3.0": ("3.11", "3.12"),
    "3.1": ("3.11", "3.12", "3.13"),
    "3.2": ("3.11", "3.12", "3.13"),
    _DEVELOPED_WITH: ("3.11", "3.12", "3.13"),
    "3.4": ("3.11", "3.12", "3.13"),  # a beta
}
_SUITES = {
    # What is imported, the metadata, the form, and the three ways to run a crew, one of them deferred.
    "smoke": [
        "tests/unit/test_package.py",
        "tests/unit/test_form.py",
        "tests/integration/test_pages_dag.py::test_each_way_runs[README.md]",
    ],
    # Without what needs a newer schemathesis than goes with every Airflow, to which the local crew owes nothing.
    "tests": [
        "tests/unit",
        "tests/integration",
        "--ignore=tests/integration/test_local_description.py",
        "--numprocesses=2",
    ],
    "system": ["tests/system"],
}
# What no suite depends on (but for the pages, whose links are tested), and what one suite does not.
_APART = ("benchmarks/", "requirements/", ".ci/", "tests/faults/", "tests/fuzz/")
_PAGE = ".md"
_ELSEWHERE = {
    "smoke": ["tests/system/"],
    "tests": ["tests/system/"],
    "system": ["tests/unit/", "tests/integration/"],
}
# Real processes for minutes: on the oldest Python, which all share.
_WITH_SYSTEM = "3.11"
# Airflow and what it needs may warn of each other in old environments; this package may not cause any warning.
_WARNINGS = "filterwarnings=default\nerror:::airflow_provider_crew"


@dataclass(frozen=True, slots=True)
class Cell:
    """One suite on one Airflow and one Python."""

    airflow: str
    python: str
    suite: str

    @property
    def name(self) -> str:
        """What its environment is called."""
        return f"airflow-{self.airflow}-python-{self.python}"

    @property
    def lock(self) -> Path:
        """What its environment is pinned to: of its own, but for the Airflow that everything is developed with."""
        name = "dev.txt" if self.airflow == _DEVELOPED_WITH else f"airflow-{self.airflow}.txt"
        return _ROOT / "requirements" / name

    @property
    def bin(self) -> Path:
        """Where the programs of its environment are."""
        return _HOME / self.name / "bin"


def main(given: Sequence[str] | None = None) -> int:
    """Run what is asked for, and tell how it went."""
    arguments = _arguments(given)
    wanted = [
        Cell(airflow, python, suite)
        for suite in arguments.suites
        for airflow in arguments.airflow
        for python in _PYTHONS[airflow]
        if python in arguments.python and (suite != "system" or python == _WITH_SYSTEM)
    ]
    outcomes: dict[Cell, str] = {}
    try:
        for cell in wanted:
            outcomes[cell] = _outcome(cell)
    finally:
        print("\n" + _table(outcomes))
    # Nothing at all having run is no success.
    return int(not any(map(_passed, outcomes.values())) or any(map(_failed, outcomes.values())))


def _failed(outcome: str) -> bool:
    return outcome.startswith("FAILED")


def _passed(outcome: str) -> bool:
    return " passed" in outcome and not _failed(outcome)


def _outcome(cell: Cell) -> str:
    """Return how it went, from the last time if nothing has changed since."""
    interpreter = _interpreter(cell.python)
    if interpreter is None:
        return "no such Python here"
    record = _HOME / "results" / f"{cell.name}-{cell.suite}.json"
    state = _state(cell)
    if record.exists() and (known := json.loads(record.read_text(encoding="utf-8")))["state"] == state:
        return f"{known['outcome']} (before)"
    try:
        _prepare(cell, interpreter)
    except subprocess.CalledProcessError as error:
        return f"FAILED: no environment, uv ended with {error.returncode}"
    outcome = _run(cell)
    if _state(cell) != state:
        return f"FAILED: files were changed meanwhile ({outcome})"
    if _passed(outcome):
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"state": state, "outcome": outcome}), encoding="utf-8")
    return outcome


def _run(cell: Cell) -> str:
    log = _HOME / "logs" / f"{cell.name}-{cell.suite}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"{cell.suite} on Airflow {cell.airflow}, Python {cell.python}: {log.relative_to(_ROOT)}", flush=True)
    command = [str(cell.bin / "python"), "-m", "pytest", "--no-cov", "-q", "-o", _WARNINGS, *_SUITES[cell.suite]]
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as told:
        done = subprocess.run(  # noqa: S603 - pytest, of an environment made here
            command, check=False, cwd=_ROOT, stdout=told, stderr=subprocess.STDOUT, env=_environment(cell)
        )
    last = log.read_text(encoding="utf-8").strip().rpartition("\n")[2].strip("= ")
    said = f"{last.partition(' in ')[0]}, {time.monotonic() - began:.0f} s"
    return said if done.returncode == 0 else f"FAILED: {said}"


def _prepare(cell: Cell, interpreter: str) -> None:
    """Make the environment, or bring it to what the lock says."""
    if not (cell.bin / "python").exists():
        _uv("venv", "--python", interpreter, cell.bin.parent)
    _uv("pip", "sync", "--require-hashes", "--python", cell.bin / "python", cell.lock)
    _uv(
        "pip", "install", "--python", cell.bin / "python", "--no-deps", "--no-build-isolation", "--editable", _ROOT
    )


@cache
def _interpreter(python: str) -> str | None:
    """Find a Python of that version: pyenv's, of which not all need to be on the path, or what is there."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [*map(str, sorted(of_pyenv.glob(f"{python}.*/bin/python"))), shutil.which(f"python{python}")]
    return next((path for path in found if path and _is_python(path, python)), None)


def _is_python(path: str, version: str) -> bool:
    done = subprocess.run(  # noqa: S603 - a Python that was found
        [path, "--version"], check=False, capture_output=True, text=True
    )
    return done.stdout.startswith(f"Python {version}.")


def _uv(*arguments: str | Path) -> None:
    subprocess.run(  # noqa: S603 - this Python's uv
        [sys.executable, "-m", "uv", "--quiet", *map(str, arguments)], check=True, cwd=_ROOT
    )


def _environment(cell: Cell) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW"))}
    return clean | {"AIRFLOW_HOME": str(_HOME / cell.name / "home"), "PATH": f"{cell.bin}:{os.environ['PATH']}"}


def _state(cell: Cell) -> str:
    """Return what stands for all that the outcome depends on."""
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],  # noqa: S607 - whichever git there is
        check=True,
        cwd=_ROOT,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    digest = hashlib.sha256(cell.lock.read_bytes())
    for name in sorted(filter(None, files)):
        apart = name.startswith(_APART) and not name.endswith(_PAGE)
        if not (apart or name.startswith(tuple(_ELSEWHERE[cell.suite]))) and (_ROOT / name).is_file():
            digest.update(name.encode() + (_ROOT / name).read_bytes())
    return digest.hexdigest()


def _table(outcomes: dict[Cell, str]) -> str:
    rows = [f"| {cell.airflow} | {cell.python} | {cell.suite} | {said} |" for cell, said in outcomes.items()]
    return "\n".join(["| Airflow | Python | suite | outcome |", "| --- | --- | --- | --- |", *rows])


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.matrix", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(_SUITES)}; tests and system")
    parser.add_argument("--airflow", nargs="+", choices=_PYTHONS, default=list(_PYTHONS))
    parser.add_argument(
        "--python", nargs="+", choices=_PYTHONS[_DEVELOPED_WITH], default=_PYTHONS[_DEVELOPED_WITH]
    )
    arguments = parser.parse_args(given)
    # Not as choices: some Pythons then take no suite at all for one that is none of them.
    if unknown := set(arguments.suites) - set(_SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}, but {', '.join(_SUITES)}")
    arguments.suites = arguments.suites or ["tests", "system"]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
