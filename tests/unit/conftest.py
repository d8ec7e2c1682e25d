"""Tables beside the unit tests, which people read. ``pytest tests/unit --write-tables`` writes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest


@pytest.fixture
def printed(pytestconfig: pytest.Config) -> Callable[..., None]:
    """Compare a table with what code makes of its lines, as far as they ``count`` on every Airflow."""

    def compare(
        name: str, make: Callable[[list[str]], Iterable[str]], counts: Callable[[str], bool] = lambda _: True
    ) -> None:
        table = Path(__file__).with_name(name)
        known = table.read_text(encoding="utf-8").splitlines()
        now = "\n".join(make(known)).rstrip("\n")
        if pytestconfig.getoption("--write-tables"):
            table.write_text(f"{now}\n", encoding="utf-8")
        else:
            # Line by line: explaining how long texts differ takes a minute.
            assert [*filter(counts, now.splitlines())] == [*filter(counts, known)]

    return compare
