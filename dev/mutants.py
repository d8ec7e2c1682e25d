"""
Change the code in small ways, and list the changes that no test notices: ``make mutants ARGS="decide watch"``.

``mutants.toml`` lists the modules that decide about money, the tests that should notice, and the known survivors
with a reason each. The command fails if another mutant survives, or if fewer than 95 % are killed or known. mutmut
changes functions and methods, but no properties, constants and fields.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[1]
_WORK = _ROOT / ".mutants"
_CONFIG = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PACKAGE = "airflow_provider_crew"
_LEAST_SCORE = 95.0
# Tests assert facts, and people read the sentences in tests/unit/verdicts.txt. So a mutant that changes only a
# sentence may survive.
_TEXT = re.compile(r"""f?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_SETTINGS = """
[tool.mutmut]
source_paths = ["{package}"]
only_mutate = ["{package}/{path}"]
process_isolation = "forkserver"
also_copy = {needed}
do_not_mutate_patterns = ['^\\s*f?"[^"]* [^"]* [^"]*"\\)?,?$']
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["--no-cov", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
"""


class Survivor(NamedTuple):
    """Mutant that no test has noticed."""

    function: str
    change: str
    """Lines of the diff that begin with a minus or a plus."""

    def __str__(self) -> str:
        return f"{self.function}\n{self.change}"

    @property
    def is_wording(self) -> bool:
        """Whether the mutant changes or omits only a sentence."""
        old, new = ([line for line in self.change.splitlines() if line[0] == sign] for sign in "-+")
        return [_without_sentences(line[1:]) for line in old] == [_without_sentences(line[1:]) for line in new]


def _without_sentences(line: str) -> str:
    return _TEXT.sub(lambda text: "None" if text[1].count(" ") > 1 else text[0], line)


def main(*names: str) -> int:
    """Try the mutants of some modules, or of all."""
    modules = {path: tests for path, tests in _CONFIG["tests"].items() if not names or Path(path).stem in names}
    if unknown := set(names) - {Path(path).stem for path in modules}:
        print(f"There is no {', '.join(sorted(unknown))} in mutants.toml.", file=sys.stderr)
        return 2
    return max([_try(path, tests) for path, tests in modules.items()])


def _try(path: str, tests: list[str]) -> int:
    """Try the mutants of a module, and print its score and the unknown survivors. Return 1 if it fails."""
    began = time.monotonic()
    work = _prepared(path, tests)
    try:
        _mutmut(work, "run")
    except subprocess.CalledProcessError as error:
        print(f"{path}: mutmut failed. Its output ends with:\n{(error.stdout + error.stderr)[-3000:]}")
        return 1
    outcomes = dict(line.strip().split(": ") for line in _mutmut(work, "results", "--all", "true"))
    survivors = [_shown(work, name) for name, outcome in outcomes.items() if outcome not in {"killed", "timeout"}]
    known = _known(path)
    new = [each for each in survivors if not each.is_wording and str(each) not in known]
    worded = sum(each.is_wording for each in survivors)
    score = 100 * (1 - len(new) / len(outcomes))
    print(
        f"{path}: {len(outcomes)} mutants, {len(outcomes) - len(survivors)} killed, "
        f"{len(survivors) - len(new) - worded} known, {worded} of a sentence, {len(new)} unknown survivors, "
        f"{score:.0f} %, {time.monotonic() - began:.0f} s"
    )
    for each in new:
        print(f"\n{each}")
    # No reason to fail: a busy machine may kill a mutant for its time.
    for mutant in sorted(known - {str(each) for each in survivors}):
        print(f"\nNo longer survives, so remove it from mutants.toml:\n{mutant}")
    return int(bool(new) or score < _LEAST_SCORE)


def _prepared(path: str, tests: list[str]) -> Path:
    """Return a folder with the package, the tests and the settings for one module."""
    work = _WORK / Path(path).with_suffix("")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in (_PACKAGE, "tests", *_CONFIG["needed"]):
        (work / name).symlink_to(_ROOT / name)
    selected = [f"tests/{name}" for name in tests]
    settings = _SETTINGS.format(package=_PACKAGE, path=path, needed=_CONFIG["needed"], tests=selected)
    (work / "pyproject.toml").write_text((_ROOT / "pyproject.toml").read_text() + settings)
    return work


def _mutmut(work: Path, *arguments: str) -> list[str]:
    """Run a command of mutmut, and return the lines of its output."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.splitlines()


def _shown(work: Path, name: str) -> Survivor:
    """Return a mutant by its name, such as ``airflow_provider_crew.task.stop.xǁStopǁheed__mutmut_3``."""
    module, _, mangled = name.rpartition(".")
    function = mangled.partition("__mutmut_")[0].removeprefix("x").strip("ǁ").replace("ǁ", ".")
    lines = [line for line in _mutmut(work, "show", name) if re.match(r"[-+](?![-+]{2})", line)]
    change = "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines)
    return Survivor(f"{module.removeprefix(_PACKAGE + '.')}.{function.removeprefix('_')}", change)


def _known(path: str) -> set[str]:
    """Return the known survivors of a module."""
    module = path.removesuffix(".py").replace("/", ".")
    mutants = [mutant.strip() for entry in _CONFIG["known"] for mutant in entry["mutants"]]
    return {mutant for mutant in mutants if mutant.startswith(f"{module}.")}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
