"""docs/quickstart.md, followed word by word in an empty folder, with the built wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dev.loopback import free_port
from tests.integration.pages import PAGES, blocks
from tests.supported import LOCK

PAGE = "docs/quickstart.md"
PORT = "8765"
INSTALL, CREW, HOME, RUN = blocks(PAGE, "console")
(DAG,) = blocks(PAGE, "python")
(SHOWN,) = blocks(PAGE, "text")
(FILE,) = re.findall(r"Save this as `(.*)`:", PAGES[PAGE])


def follow(folder: Path, install: str) -> str:
    """
    Do what the page says, with nothing set for Airflow, pip or Python, and return what the first terminal shows.

    The crew, in the second one, has a port that is free here. At the end, Airflow lists its hooks.
    """
    ours = ("AIRFLOW", "_AIRFLOW", "CREW_", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment["PATH"] = path = f"{sys.base_prefix}/bin:{environment['PATH']}"
    port = str(free_port())
    script = f"""
{install}
PATH='{path}' bash -e > crew.log 2>&1 <<'END' &
{CREW.rstrip()} --port {port}
END
until grep --quiet :{port} crew.log; do kill -0 $!; sleep 0.2; done
{HOME.replace(PORT, port)}
cat > {FILE} <<'END'
{DAG}
END
{RUN}
airflow providers hooks --output json
"""
    shell = subprocess.Popen(
        ["bash", "-ec", script],  # noqa: S607 - as people have it
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        shown, _ = shell.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
    assert shell.returncode == 0, shown
    return shown


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

    said = follow(tmp_path, faster + INSTALL)

    assert_shown(said)
    assert "airflow_provider_crew.hooks.crew.CrewHook" in said, "Airflow has not found the provider"
