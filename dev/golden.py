"""
Write what this version stores into ``tests/golden/``, for the tests of later versions: ``make golden``.

Nothing overwrites a set. Until its version is released, remove the folder first if a format changes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider_crew import __version__

_TESTS = Path(__file__).parents[1] / "tests/golden"


def main(into: Path = _TESTS / __version__) -> int:
    """Record each scene with today's code, and read it again."""
    if into.exists():
        print(f"{into} exists, and is not overwritten.", file=sys.stderr)
        return 1
    return pytest.main(["--no-cov", "-q", "-k", "today", "--golden-into", str(into), str(_TESTS)])


if __name__ == "__main__":
    sys.exit(main())
