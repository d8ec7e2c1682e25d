"""``python -m airflow_provider_crew.local --crew``, as a person at a terminal and as a process that is killed."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from airflow_provider_crew.local import __main__
from airflow_provider_crew.local.projects import engine
from tests import airflow_runs

RUNNER = Path(__file__).parent / "fake_runner.py"
# The command itself, with a runner that needs no CrewAI.
COMMAND = (
    "import pathlib, sys, runpy; from airflow_provider_crew.local.projects import engine; "
    f"engine._RUNNER = pathlib.Path({str(RUNNER)!r}); sys.argv[0] = 'local'; "
    "runpy.run_module('airflow_provider_crew.local', run_name='__main__')"
)
EXPORT = re.compile(r"export AIRFLOW_CONN_CREW_DEFAULT='(.*)' CREW_TOKEN=(.*)")
eventually = partial(airflow_runs.eventually, pause=0.02)


class Terminal:
    """The command in a terminal of its own, and what it prints."""

    def __init__(self, folder, *options):
        command = [
            sys.executable,
            "-c",
            COMMAND,
            "--crew",
            folder,
            "--port",
            "0",
            "--dialect",
            "deployed",
            *options,
        ]
        self.folder = folder
        self.lines = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        uri, token = self.line(EXPORT).groups()
        self.url = f"http://127.0.0.1:{urlsplit(uri).port}"
        self.headers = {"Authorization": f"Bearer {shlex.split(token)[0]}"}

    def line(self, pattern):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without {pattern!r}: {self.lines}")

    def kickoff(self):
        body = {"inputs": {"topic": "tides"}}
        answer = requests.post(f"{self.url}/kickoff", json=body, headers=self.headers, timeout=60)
        return answer.json()["kickoff_id"]

    def status(self, kickoff_id):
        return requests.get(f"{self.url}/status/{kickoff_id}", headers=self.headers, timeout=60).json()

    def ended(self, how):
        """End it this way, and return what it has printed since."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=60)[0]


@pytest.fixture
def project(tmp_path):
    task = {"task": "research", "agent": "Researcher"}
    steps = [
        {"said": "task_started", **task, "index": 0, "of": 1},
        {"do": "print", "text": "thinking"},
        {"do": "until", "file": "go"},
        {"said": "task_completed", **task, "description": "", "output": "found", "seconds": 0.5},
        {"said": "completed", "output": "sent", "json": None, "tasks": [], "usage": None, "seconds": 1.0},
    ]
    (tmp_path / "story.json").write_text(json.dumps({"steps": steps}))
    return tmp_path


@pytest.fixture
def terminal(project):
    running = []

    def start(*options):
        running.append(Terminal(project, *options))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.ended(signal.SIGKILL)
        each.process.stdout.close()


def nobody_is_left(project):
    for pid in (project / "started").read_text().split():
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            continue
        return False
    return True


def test_tells_each_execution_as_it_goes(terminal, project):
    shown = terminal()
    assert "local only" in shown.line("/local/")[0] or "local only" in shown.lines[-1]
    kickoff_id = shown.kickoff()
    shown.line(rf"^\d\d:\d\d:\d\d {kickoff_id} begins research, by Researcher$")
    shown.line(rf"{kickoff_id} \| thinking$")
    (project / "go").touch()
    shown.line(rf"{kickoff_id} has done research in 0\.5 s$")
    shown.line(rf"{kickoff_id} completed in \d+\.\d s$")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_that_it_has_started(terminal, project, how):
    shown = terminal()
    shown.kickoff()
    shown.line("thinking")

    assert shown.ended(how).strip() == ""
    assert shown.process.returncode == 0
    assert nobody_is_left(project)


def test_nothing_is_lost_when_it_is_killed(terminal, project, tmp_path):
    keep = ("--keep", str(tmp_path / "kept"))
    killed = terminal(*keep)
    ids = [killed.kickoff() for _ in range(3)]
    for _ in ids:
        killed.line("thinking")
    (project / "go").touch()
    before = [eventually(lambda: (body := killed.status(each))["state"] == "SUCCESS" and body) for each in ids]  # noqa: B023
    (project / "go").unlink()
    cut = killed.kickoff()
    killed.line("thinking")
    killed.ended(signal.SIGKILL)
    eventually(lambda: nobody_is_left(project))

    again = terminal(*keep)

    assert [again.status(each) for each in ids] == before
    assert again.status(cut)["status"] == "The local service ended while the crew was at work."


class TestMain:
    @pytest.fixture(autouse=True)
    def _runner(self, monkeypatch):
        monkeypatch.setattr(engine, "_RUNNER", RUNNER)

    def test_says_why_a_project_cannot_be_loaded(self, capsys, project):
        trace = "Traceback:\n  File crew.py\nImportError: no tools\n"
        story = {"not_loaded": {"error": "ImportError: no tools", "traceback": trace}}
        (project / "story.json").write_text(json.dumps(story))

        assert __main__.main(["--crew", str(project), "--port", "0"]) == 1
        assert capsys.readouterr().err == f"{trace}ImportError: no tools\n"

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            (["--keep", "file"], "--keep is for a real crew, and needs --crew"),
            (["--python", "python"], "--python is for a real crew, and needs --crew"),
            (["--at-most", "2"], "--at-most is for a real crew, and needs --crew"),
            (["--crew", ".", "--fail"], "--fail changes a script, so leave it out with --crew"),
            (["--crew", ".", "--seconds", "1"], "--seconds changes a script, so leave it out with --crew"),
            (["--crew", ".", "--at-most", "0"], "0 is not a number of executions"),
        ],
    )
    def test_says_what_does_not_go_together(self, capsys, given, complaint):
        with pytest.raises(SystemExit):
            __main__.main(given)

        assert complaint in capsys.readouterr().err

    def test_takes_the_interpreter_of_the_project(self, capsys, project):
        own = project / ".venv" / "bin"
        own.mkdir(parents=True)
        (own / "python").write_text("#!/bin/sh\necho it is this one\nexit 3\n")
        (own / "python").chmod(0o755)

        assert __main__.main(["--crew", str(project), "--port", "0"]) == 1
        assert "loading | it is this one" in capsys.readouterr().out
