"""``python -m airflow_provider_crew.local``, at a terminal and as a process that is killed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest

from airflow_provider_crew.local import LocalCrewService, __main__
from tests.airflow_runs import eventually
from tests.crews.hosting import exists
from tests.integration.fake_runner import write_project
from tests.integration.local_client import Client

EXPORT = re.compile(r"export AIRFLOW_CONN_CREW_DEFAULT='(.*)' CREW_TOKEN=(.*)")


class Terminal:
    """The command in a session of its own, and the lines it prints."""

    def __init__(self, *options):
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "airflow_provider_crew.local", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        uri, token = self.line(EXPORT).groups()
        self.password = unquote(urlsplit(uri).password)
        url = f"http://127.0.0.1:{urlsplit(uri).port}"
        self.client = Client(SimpleNamespace(url=url, token=shlex.split(token)[0]))

    def line(self, pattern):
        """Read on to a line like this."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without {pattern!r}: {self.lines}")

    def end(self, how):
        """End it this way, and return what it has printed since, its errors and its exit code."""
        self.process.send_signal(how)
        rest, error = self.process.communicate()
        return rest.strip(), error, self.process.returncode


@pytest.fixture
def terminal():
    running = []

    def start(*options):
        running.append(Terminal(*options))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "ends"),
    [((), {"status": "running"}), (("--seconds", "0", "--fail", "out of credit"), {"error": "out of credit"})],
)
def test_connection_works_and_ctrl_c_ends_it_quietly(terminal, options, ends):
    shown = terminal("--token", "it's a/b:c@d %'é secret", *options)
    assert shown.password == shown.client.token == "it's a/b:c@d %'é secret"

    kickoff_id = shown.client.kickoff()
    shown.line(r'^\d\d:\d\d:\d\d POST /kickoff 200 {"topic": "tides", "audience": "sailors"}$')
    assert shown.client.status(kickoff_id).items() >= ends.items()
    shown.line(rf"^\d\d:\d\d:\d\d GET /status/{kickoff_id} 200$")

    assert shown.end(signal.SIGINT) == ("", "", 0)
    assert sum("secret" in line for line in shown.lines) == 1


@pytest.mark.parametrize(
    "given",
    [["--keep", "file"], ["--crew", ".", "--fail"], ["--airflow-url", "localhost:8080"], ["--port", "65536"]],
)
def test_options_that_do_not_go_together_are_rejected(given):
    with pytest.raises(SystemExit):
        __main__.main(given)


TRACE = "Traceback:\n  File crew.py\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--port {port}", "Cannot listen on port {port}: Address already in use. Choose another with --port.\n"),
        ("--scenario {folder}/scenario.toml", "{folder}/scenario.toml: colour: Extra inputs are not permitted\n"),
        ("--port 0 --crew {folder}", f"{TRACE}ImportError: no tools\n"),
        ("--port 0 --crew {folder}/other", "There is no folder {folder}/other.\n"),
    ],
)
def test_server_that_cannot_start_tells_why(capsys, tmp_path, options, error):
    (tmp_path / "scenario.toml").write_text("colour = 'red'")
    write_project(tmp_path, not_loaded={"error": "ImportError: no tools", "traceback": TRACE})
    with LocalCrewService() as other:
        known = {"port": other.port, "folder": tmp_path}

        assert __main__.main(options.format(**known).split()) == 1
    assert capsys.readouterr().err == error.format(**known)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_all_processes_of_a_project(terminal, tmp_path, how):
    write_project(tmp_path, steps=[{"do": "print", "text": "thinking"}, {"do": "until", "file": "go"}])
    shown = terminal("--crew", str(tmp_path), "--dialect", "deployed")
    shown.client.kickoff()
    shown.line("thinking")

    rest, _, code = shown.end(how)
    assert (rest, code) == ("", 0)
    started = [int(pid) for pid in (tmp_path / "started").read_text().split()]
    eventually(lambda: not any(map(exists, started)), pause=0.02)
