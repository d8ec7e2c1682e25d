"""``python -m airflow_provider_crew.local``, at a terminal and as a process that is killed."""

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, __main__
from tests import airflow_runs
from tests.integration.fake_project import write_project
from tests.integration.local_client import Client

EXPORT = re.compile(r"export AIRFLOW_CONN_CREW_DEFAULT='(.*)' CREW_TOKEN=(.*)")
eventually = partial(airflow_runs.eventually, pause=0.02)


def client_of(export):
    """Return a client of the service that an export line names."""
    uri, token = export.groups()
    url = f"http://127.0.0.1:{urlsplit(uri).port}"
    return Client(SimpleNamespace(url=url, token=shlex.split(token)[0]))


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
        self.export = self.line(EXPORT)
        self.client = client_of(self.export)

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

    def events(self):
        """End it as Ctrl-C does, and return the lines it has printed with a time, without that time."""
        self.process.send_signal(signal.SIGINT)
        self.lines += self.process.stdout.read().splitlines()
        self.process.communicate()
        return [line.split(" ", 1)[1] for line in self.lines if re.match(r"\d\d:\d\d:\d\d ", line)]


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


class TestScript:
    def test_connection_works_and_ctrl_c_ends_it_quietly(self, terminal):
        shown = terminal("--token", "it's secret")
        assert unquote(urlsplit(shown.export[1]).password) == shown.client.token == "it's secret"

        kickoff_id = shown.client.kickoff()
        shown.line(r'^\d\d:\d\d:\d\d POST /kickoff 200 {"topic": "tides", "audience": "sailors"}$')
        shown.client.status(kickoff_id)
        shown.line(rf"^\d\d:\d\d:\d\d GET /status/{kickoff_id} 200$")

        assert shown.end(signal.SIGINT) == ("", "", 0)
        assert sum("secret" in line for line in shown.lines) == 1

    def test_taken_port_is_an_error(self, capsys):
        with LocalCrewService() as other:
            code = __main__.main(["--port", str(other.port)])

        assert code == 1
        assert capsys.readouterr().err == (
            f"Cannot listen on port {other.port}: Address already in use. Choose another with --port.\n"
        )

    def test_invalid_scenario_is_an_error(self, capsys, tmp_path):
        file = tmp_path / "scenario.toml"
        file.write_text("colour = 'red'")

        assert __main__.main(["--scenario", str(file)]) == 1
        assert capsys.readouterr().err == f"{file}: colour: Extra inputs are not permitted\n"


@pytest.fixture
def main(capsys, monkeypatch):
    """Run the command with a call in place of its wait at the terminal, and return the call's result."""

    def run(*given, call):
        results = []

        class Wait:
            def wait(self, _):
                results.append(call(client_of(EXPORT.search(capsys.readouterr().out))))
                raise KeyboardInterrupt

        monkeypatch.setattr(__main__, "threading", SimpleNamespace(Event=Wait))
        assert __main__.main(["--port", "0", *given]) == 0
        return results[0]

    return run


class TestOptions:
    @pytest.mark.parametrize(
        ("given", "ends"),
        [
            (("--seconds", "0"), {"status": "completed"}),
            (("--seconds", "3600"), {"status": "running"}),
            (("--seconds", "0", "--fail", "out of credit"), {"status": "error", "error": "out of credit"}),
        ],
    )
    def test_seconds_and_fail_change_the_script(self, main, given, ends):
        body = main(*given, call=lambda client: client.status(client.kickoff()))

        assert body.items() >= ends.items()

    def test_one_line_is_printed_per_request(self, main, capsys, tmp_path):
        file = tmp_path / "scenario.toml"
        file.write_text('[[faults]]\nkind = "answer"\nstatus = 503\n[[faults]]\nkind = "reset"\n')

        def visit(client):
            client.get("/inputs")
            with contextlib.suppress(requests.ConnectionError, http.client.HTTPException):
                client.get("/inputs")
            client.get("/inputs", headers={})
            client.post("/kickoff", {"inputs": {"topic": "tides"}})

        main("--scenario", str(file), call=visit)

        printed = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines() if line]
        assert printed == [
            "GET /inputs 503 (fault: answer)",
            "GET /inputs no answer (fault: reset)",
            "GET /inputs 401",
            'POST /kickoff 422 {"topic": "tides"}',
        ]

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            (["--keep", "file"], "--keep is for a real crew, and needs --crew"),
            (["--crew", ".", "--fail"], "--fail is for a scripted crew, not for --crew"),
            (["--airflow-url", "localhost:8080"], "localhost:8080 does not start with http:// or https://"),
        ],
    )
    def test_options_that_do_not_go_together_are_rejected(self, capsys, given, complaint):
        with pytest.raises(SystemExit):
            __main__.main(given)

        assert complaint in capsys.readouterr().err


class TestCrew:
    @pytest.fixture
    def project(self, tmp_path):
        task = {"task": "research", "agent": "Researcher"}
        steps = [
            {"said": "task_started", **task, "index": 0, "of": 1},
            {"do": "print", "text": "thinking"},
            {"do": "until", "file": "go"},
            {"said": "task_completed", **task, "description": "", "output": "found", "seconds": 0.5},
            {"said": "completed", "output": "sent", "json": None, "tasks": [], "usage": None, "seconds": 1.0},
        ]
        write_project(tmp_path, steps=steps)
        return tmp_path

    @pytest.fixture
    def host(self, terminal, project):
        return lambda *options: terminal("--crew", str(project), "--dialect", "deployed", *options)

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_ends_all_that_it_has_started(self, host, project, how):
        shown = host()
        shown.client.kickoff()
        shown.line("thinking")

        rest, _, code = shown.end(how)
        assert (rest, code) == ("", 0)
        eventually(lambda: all_have_ended(project))

    def test_nothing_is_lost_when_it_is_killed(self, host, project, tmp_path):
        keep = ("--keep", str(tmp_path / "kept"))
        killed = host(*keep)
        ids = [killed.client.kickoff() for _ in range(3)]
        for _ in ids:
            killed.line("thinking")
        (project / "go").touch()

        def completed(kickoff_id):
            return eventually(lambda: (body := killed.client.status(kickoff_id))["state"] == "SUCCESS" and body)

        before = [completed(each) for each in ids]
        (project / "go").unlink()
        cut = killed.client.kickoff()
        killed.line("thinking")
        killed.end(signal.SIGKILL)
        eventually(lambda: all_have_ended(project))

        again = host(*keep).client

        assert [again.status(each) for each in ids] == before
        assert again.status(cut)["status"] == "The local server ended while the crew was at work."

    def test_project_that_cannot_be_loaded_is_an_error(self, capsys, project):
        trace = "Traceback:\n  File crew.py\nImportError: no tools\n"
        story = {"not_loaded": {"error": "ImportError: no tools", "traceback": trace}}
        (project / "story.json").write_text(json.dumps(story))

        assert __main__.main(["--crew", str(project), "--port", "0"]) == 1
        assert capsys.readouterr().err == f"{trace}ImportError: no tools\n"


def all_have_ended(project):
    for pid in (project / "started").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 0)
            return False
    return True
