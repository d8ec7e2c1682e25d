"""
Look for what keeps this from being a release, before it is built: ``make release``.

What is built is checked by twine. Nothing else checks that the changelog speaks of this version, that an index can
show where the README's links lead, and that newer versions are tested with what this one stores.
"""

from __future__ import annotations

import re
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_crew import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(__file__).parents[1]
_ADDRESSES = ("Homepage", "Documentation", "Source", "Issues")
_ENTRY = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


class NotReady(Exception):
    """What keeps this from being a release. The message says what to do."""


def main() -> int:
    """Tell what is new in this version, unless something is in the way."""
    try:
        entry = changelog_entry(_text("CHANGELOG.md"), __version__)
        require_addresses(tomllib.loads(_text("pyproject.toml"))["project"])
        require_golden_set(_ROOT / "tests/golden" / __version__)
    except NotReady as error:
        print(f"No release: {error}", file=sys.stderr)
        return 1
    print(f"Version {__version__}\n\n{entry}")
    return 0


def changelog_entry(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, which has to come first and have a date."""
    newest = _ENTRY.search(changelog)
    if newest is None or not _is_dated(newest[1], version) or not newest[2].strip():
        raise NotReady(f"CHANGELOG.md has to begin with '## {version} (YYYY-MM-DD)', and with what is new.")
    return newest[2].strip()


def require_addresses(project: Mapping[str, Any]) -> None:
    """Refuse a project that leaves open where it is."""
    if missing := [name for name in _ADDRESSES if not project.get("urls", {}).get(name)]:
        raise NotReady(f"[project.urls] in pyproject.toml has to have an address for {', '.join(missing)}.")


def require_golden_set(folder: Path) -> None:
    """Refuse a version whose stored data no later version is tested with."""
    if not folder.is_dir():
        raise NotReady(f"Nothing is in tests/golden/{folder.name}. Run make golden, and commit what it writes.")


def _is_dated(heading: str, version: str) -> bool:
    named, _, released = heading.partition(" ")
    try:
        return named == version and f"({date.fromisoformat(released[1:-1])})" == released
    except ValueError:
        return False


def _text(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
