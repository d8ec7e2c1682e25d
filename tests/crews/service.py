"""The local service with a real crew, as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Self

import requests

from dev.loopback import HOST, free_port
from tests.airflow_runs import eventually
from tests.crews.hosting import ENVIRONMENT, PROJECTS, PYTHON

TOKEN = "token-of-a-real-crew-that-nobody-may-see"


class CrewService:
    """One project and its service, on the same port as long as it lives."""

    def __init__(self, project: str, first: str, folder: Path, *, seconds: float = 0) -> None:
        self._first = first
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._log = folder / "log"
        self._command = [sys.executable, "-m", "airflow_provider_crew.local", "--crew", project]
        self._command += ["--python", PYTHON, "--port", f"{self.port}", "--token", TOKEN]
        self._command += ["--dialect", "deployed", "--keep", f"{folder / 'kept'}"]
        self._environment = {**ENVIRONMENT, "PYTHONPATH": str(PROJECTS), "BRIEFING_SECONDS": f"{seconds}"}
        self._folder = folder
        self._process: subprocess.Popen[bytes]

    @property
    def connection(self) -> str:
        fields = {"conn_type": "crew", "host": HOST, "port": self.port, "schema": "http", "password": TOKEN}
        return json.dumps(fields)

    def __enter__(self) -> Self:
        """Start it; it is ready when it listens."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        eventually(lambda: "is listening" in self.log or self._process.poll() is not None, 300)
        assert self._process.poll() is None, self.log
        return self

    def __exit__(self, *_: object) -> None:
        """End it as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    @property
    def begun(self) -> Counter[str]:
        """How often CrewAI began the first task of each execution."""
        return Counter(re.findall(rf"([0-9a-f-]{{36}}) started {self._first}\b", self.log))

    def status(self, kickoff_id: str) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer: dict[str, Any] = requests.get(
            f"{self.url}/status/{kickoff_id}", headers=headers, timeout=30
        ).json()
        return answer

    def page(self) -> str:
        return requests.get(f"{self.url}/local/", auth=("anybody", TOKEN), timeout=30).text

    def answer(self, answer: str, feedback: str = "") -> None:
        """Answer the one question there is, as the form of the page does."""
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.page()))
        sent = requests.post(
            f"{self.url}/local/",
            data={**hidden, "feedback": feedback, "answer": answer},
            auth=("anybody", TOKEN),
            headers={"origin": self.url},
            timeout=30,
        )
        assert sent.ok, sent.text

    def runners(self) -> list[int]:
        """Return the processes that host this project, the one kept warm included."""
        return [pid for pid in _processes() if f"{self._folder}".encode() in _environment_of(pid)]


def _processes() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"crew_runner.py" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has just ended
            continue
    return found


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
