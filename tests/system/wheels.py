"""Commands around built wheels, run outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path, *what: str) -> None:
    """Build sdist and wheel, or ``what`` of them, into a folder."""
    run(sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", folder, ROOT)
