"""Tasks, step by step, against the local server: ``stories.txt`` has what happens and what comes of it."""

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
    pytest.param(title, kind, options, steps.splitlines(), id=f"{title}: {kind}")
    for title, kinds, options, steps in _STORY.findall(Path(__file__).with_name("stories.txt").read_text())
    for kind in kinds.split(", ")
]


@pytest.mark.parametrize(("title", "kind", "options", "steps"), STORIES)
def test_story(title, kind, options, steps, live_crew, task_log, monkeypatch, timing, printed):
    if AIRFLOW < (3, 3) and (title.endswith("[Airflow 3.3]") or kind.startswith("rescheduled")):
        pytest.skip("This Airflow has no task state store.")
    story = Story(live_crew, task_log, monkeypatch, timing, kind, named(options))

    def make(known: list[str]) -> list[str]:
        at = known.index(f"# {title}")
        end = next((n for n in range(at, len(known)) if not known[n]), len(known))
        return [*known[: at + 2], *story.lines(steps), *known[end:]]

    printed("stories.txt", make)
