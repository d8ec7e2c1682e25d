"""Start the runner with the interpreter of the crews, and talk to it as the local service does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import airflow_provider_crew.local

ROOT = Path(__file__).parents[2]
RUNNER = Path(airflow_provider_crew.local.__file__).with_name("crew_runner.py")
EXAMPLE = ROOT / "example_crews" / "briefing"
INPUTS = {"topic": "electric ferries", "audience": "harbour masters"}
PROJECTS = Path(__file__).parent / "projects"
# The environment that ``make .venv-crew/.ready`` builds, or another one with an older crewai.
PYTHON = os.environ.get("CREW_PYTHON", str(ROOT / ".venv-crew" / "bin" / "python"))
# No test tells anybody anything, or takes a model that costs something.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in {"OPENAI_API_KEY", "MODEL", "PYTHONPATH"}
} | {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "BRIEFING_SECONDS": "0",
}


class Hosted:
    """A runner, and this end of its pipes."""

    def __init__(self, project: str, folder: Path, python: str, **environment: str) -> None:
        self.log_file = folder / "log"
        self._storage = folder / "storage"
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [python, str(RUNNER), "--project", project, "--read", str(read), "--write", str(write)]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**ENVIRONMENT, "CREWAI_STORAGE_DIR": str(self._storage), **environment},
                pass_fds=(read, write),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(read)
        os.close(write)
        self._lines = os.fdopen(self._read, encoding="utf-8")

    def hear(self) -> dict[str, Any] | None:
        """Return the next message, or None when there will be none."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def until(self, *said: str) -> list[dict[str, Any]]:
        """Return all messages up to the first that says one of these."""
        heard: list[dict[str, Any]] = []
        while not heard or heard[-1]["said"] not in said:
            message = self.hear()
            assert message is not None, f"it has ended: {heard}\n{self.log()}"
            heard.append(message)
        return heard

    def do(self, *messages: dict[str, Any]) -> None:
        """Send these together, so that they arrive at once."""
        os.write(self._write, b"".join(json.dumps(each).encode() + b"\n" for each in messages))

    def kickoff(self, kickoff_id: str = "kickoff-1", restore_from: str | None = None, **inputs: Any) -> None:
        self.do(kickoff(kickoff_id, restore_from, **inputs))

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8")

    def leave(self) -> None:
        """Close this end of both pipes, as the death of the service does."""
        if not self._lines.closed:
            os.close(self._write)
            self._lines.close()


def kickoff(kickoff_id: str = "kickoff-1", restore_from: str | None = None, **inputs: Any) -> dict[str, Any]:
    return {"do": "kickoff", "id": kickoff_id, "inputs": inputs, "restore_from": restore_from}


def answer(feedback: str = "", *, approved: bool) -> dict[str, Any]:
    return {"do": "answer", "approved": approved, "feedback": feedback}


@contextmanager
def hosting(project: str, folder: Path, python: str = PYTHON, **environment: str) -> Iterator[Hosted]:
    """Host a project from this folder. Of the tests' own projects, only the name is needed."""
    hosted = Hosted(project, folder, python, **{"PYTHONPATH": str(PROJECTS), **environment})
    try:
        yield hosted
    finally:
        hosted.leave()
        hosted.process.wait()


def by_hand(folder: Path, **inputs: str) -> dict[str, Any]:
    """Return what CrewAI returns when somebody runs the example crew by hand."""
    told = folder / "by-hand.json"
    subprocess.run(
        [PYTHON, str(PROJECTS / "by_hand.py"), json.dumps(inputs), str(told)],
        cwd=folder,
        env={**ENVIRONMENT, "CREWAI_STORAGE_DIR": str(folder / "by-hand"), "PYTHONPATH": str(EXAMPLE / "src")},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=True,
    )
    returned: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    return returned


def exists(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def crewai_version() -> tuple[int, ...]:
    """Tell which crewai the tests host."""
    code = "import importlib.metadata as m; print(m.version('crewai'))"
    told = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in told.strip().split(".")[:3])
