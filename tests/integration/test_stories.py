"""Tasks, step by step, against the local server: ``stories*.txt`` has what happens and what comes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.stories import Story, named
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

# Title, kinds of tasks, their options, and steps.
_STORY = re.compile(r"^# (.+)\n(.+?)(?: \((.+)\))?\n((?:  .+\n)*)", re.MULTILINE)
STORIES = [
    pytest.param(table.name, title, kind, options, steps.splitlines(), id=f"{title}: {kind}")
    for table in sorted(Path(__file__).parent.glob("stories*.txt"))
    for title, kinds, options, steps in _STORY.findall(table.read_text())
    for kind in kinds.split(", ")
]


@pytest.fixture
def fixtures(live_crew, task_log, monkeypatch, timing, each_look_takes, out, ledger, exporter, counted):
    return locals()


@pytest.mark.parametrize(("table", "title", "kind", "options", "steps"), STORIES)
def test_story(table, title, kind, options, steps, fixtures, printed):
    if AIRFLOW < (3, 3) and ("[Airflow 3.3]" in title or kind.startswith("rescheduled") or kind.endswith("batch")):
        pytest.skip("This Airflow has no task state store.")
    story = Story(kind, named(options), fixtures)

    def make(known: list[str]) -> list[str]:
        at = known.index(f"# {title}")
        end = next((n for n in range(at, len(known)) if not known[n]), len(known))
        return [*known[: at + 2], *story.lines(steps), *known[end:]]

    printed(table, make)
