"""docs/quickstart.md, followed word by word in an empty folder, with the built wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dev.loopback import free_port
from tests.integration.pages import PAGES, blocks
from tests.supported import LOCK

PAGE = "docs/quickstart.md"
NAME = "airflow-provider-crew"
PORT = "8765"
MARK = "-- done --"
INSTALL, CREW, HOME, RUN = blocks(PAGE, "console")
(DAG,) = blocks(PAGE, "python")
(SHOWN,) = blocks(PAGE, "text")


class Terminal:
    """A shell that goes on from command to command, with nothing set for Airflow, pip or Python."""

    def __init__(self, folder: Path) -> None:
        ours = ("AIRFLOW", "_AIRFLOW", "CREW_", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environment["PATH"] = f"{sys.base_prefix}/bin:{environment['PATH']}"
        self._shell = subprocess.Popen(
            ["bash", "-e"],  # noqa: S607 - as people have it
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def type(self, commands: str, until: str = MARK) -> str:
        """Return what commands show, to a line with this in it. The first one that fails ends the shell."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{\n{commands}\n}} </dev/null\necho {MARK}\n")
        self._shell.stdin.flush()
        shown = ""
        for line in self._shell.stdout:
            shown += line
            if until in line:
                return shown
        raise AssertionError(f"it ended without {until!r}:\n{shown}")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.communicate()


def follow(folder: Path, install: str) -> str:
    """Do what the page says, and return what the last command shows. The crew has a port that is free here."""
    port = str(free_port())
    with closing(Terminal(folder)) as first, closing(Terminal(folder)) as second:
        first.type(install)
        second.type(f"{CREW.rstrip()} --port {port}", until=f":{port}")
        first.type(HOME.replace(PORT, port))
        (path,) = re.findall(r"Save this as `(.*)`:", PAGES[PAGE])
        (folder / path).write_text(DAG)
        return first.type(RUN)


def assert_shown(said: str) -> None:
    """Expect each line of the page among those of the log, in their order; "…" stands for whatever differs."""
    at = 0
    for line in SHOWN.splitlines():
        parts = (re.escape(part.strip()) for part in line.split("…"))
        found = re.compile(".*".join(parts)).search(said, at)
        assert found, f"{line!r} is not in:\n{said[at:]}"
        at = found.end()


@pytest.mark.nightly
def test_it_ends_with_what_the_crew_puts_out(tmp_path, wheel):
    # Airflow and all others at the versions of this environment, by an installer that has them at hand.
    options = f"--quiet --python .venv --constraints {LOCK} --find-links {wheel.parent}"
    faster = f'pip() {{ {sys.executable} -m uv pip "$@" {options}; }}\n'

    assert_shown(follow(tmp_path, faster + INSTALL))
