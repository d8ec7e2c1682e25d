"""A folder that the local server takes for a project: its interpreter plays ``story.json`` instead of a crew."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_RUNNER = Path(__file__).with_name("fake_runner.py")


def write_project(folder: Path, **story: Any) -> None:
    """Write the story and the interpreter, which runs another runner than it is told to."""
    (folder / "story.json").write_text(json.dumps(story))
    python = folder / ".venv/bin/python"
    if not python.exists():
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {_RUNNER} "$@"\n')
        python.chmod(0o755)
