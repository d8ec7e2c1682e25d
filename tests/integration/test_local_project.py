"""``python -m airflow_provider_crew.local``, and processes, queue and ends of a project, which a runner plays."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest

from airflow_provider_crew.local import LocalCrewService, Scenario, __main__
from airflow_provider_crew.local.projects.engine import Project
from tests import airflow_runs
from tests.crews.hosting import exists
from tests.integration.fake_runner import write_project
from tests.integration.local_client import INPUTS, Client

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
    eventually(lambda: not any(map(exists, started)))


eventually = partial(airflow_runs.eventually, pause=0.02)

RESEARCH = {"task": "research", "agent": "Researcher"}
DONE = {
    "said": "completed",
    "output": '{"pages": 1}',
    "json": {"pages": 1},
    "tasks": [],
    "usage": {"total_tokens": 7},
    "seconds": 1.0,
    "state_id": None,
}
STEPS = (
    {"said": "task_started", **RESEARCH, "index": 0, "of": 2},
    {"said": "task_completed", **RESEARCH, "description": "Find out", "output": "found", "seconds": 0.5},
    {"said": "task_started", "task": "writing", "agent": "Writer", "index": 1, "of": 2},
)
GO = {"do": "until", "file": "go"}
ASK = {"do": "wait", "task": "writing", "draft": "a page"}


class Crew(Client):
    """A project in a folder, and a client of its service."""

    def __init__(self, folder, story):
        self.folder, self.keep, self.storage = folder, folder / "kept", folder / "kept-storage"
        self.lines = []
        self.tell(**story)

    def tell(self, **story):
        write_project(self.folder, **story)

    def serve(self, **options):
        project = Project(self.folder, log=self.lines.append, **options)
        super().__init__(LocalCrewService(Scenario(dialect="deployed"), project=project))
        return self.service

    def until(self, kickoff_id, state):
        return eventually(lambda: (body := self.status(kickoff_id))["state"] == state and body)

    def at_writing(self, kickoff_id):
        """Wait until an execution is at its second task, and return its status."""
        return eventually(lambda: (body := self.status(kickoff_id))["progress"]["current"] == "writing" and body)

    def go(self):
        (self.folder / "go").touch()

    @property
    def kickoffs(self):
        return [json.loads(line) for line in (self.folder / "kickoffs").read_text().splitlines()]

    def pid_of(self, kickoff_id):
        return next(kickoff["pid"] for kickoff in self.kickoffs if kickoff["id"] == kickoff_id)


def mode_of(path):
    return path.lstat().st_mode & 0o777


@pytest.fixture
def crew(tmp_path):
    def tell(*steps, **story):
        return Crew(tmp_path, {"steps": steps or (*STEPS, DONE), **story})

    return tell


def test_runner_messages_become_a_status(crew):
    crew = crew(*STEPS, {"do": "print", "text": "thinking\x1b[2J …"}, GO, DONE)
    with crew.serve():
        assert len({crew.service.token, crew.service.user_token, Scenario().token, Scenario().user_token}) == 4
        kickoff_id = crew.kickoff(meta={"a": 1})
        progress = crew.at_writing(kickoff_id)["progress"]
        eventually(lambda: f"{kickoff_id} | thinking[2J …" in crew.lines)
        crew.go()
        over = crew.until(kickoff_id, "SUCCESS")

    assert (
        progress.items() >= {"completed": 1, "total": 2, "current": "writing", "current_agent": "Writer"}.items()
    )
    assert (over["result"], over["result_json"]) == ('{"pages": 1}', {"pages": 1})
    assert over["usage_metrics"] == {"total_tokens": 7}
    last = {"name": "research", "description": "Find out", "output": "found"}
    assert over["last_executed_task"] == last | {"kickoff_id": kickoff_id, "meta": {"a": 1}}
    (kickoff,) = crew.kickoffs
    assert (kickoff["id"], kickoff["inputs"], kickoff["restore_from"]) == (kickoff_id, INPUTS, None)
    assert kickoff["stdin"] == ""


@pytest.mark.parametrize(("kind", "word"), [("crew", "NOT FOUND"), ("flow", "PAUSED")])
def test_crew_gets_the_answers_of_a_person(crew, kind, word):
    crew = crew(ASK, DONE, ready={"kind": kind})
    with crew.serve() as service:
        kickoff_id = crew.kickoff()
        execution = service.execution(kickoff_id)
        for draft, approves in [("a page", False), ("a page, shorter", True)]:
            eventually(lambda: (at := execution.standing(0)).waiting and at.draft.startswith(draft))  # noqa: B023
            assert crew.status(kickoff_id)["state"] == word
            answer = {"execution_id": kickoff_id, "human_feedback": "shorter", "is_approve": approves}
            assert crew.post("/resume", answer).status_code == 200
        crew.until(kickoff_id, "SUCCESS")


def test_killed_process_fails_its_execution_and_no_other(crew):
    crew = crew(*STEPS, GO, DONE)
    with crew.serve():
        killed, other = crew.kickoff(), crew.kickoff()
        for kickoff_id in (killed, other):
            crew.at_writing(kickoff_id)
        os.kill(crew.pid_of(killed), signal.SIGKILL)
        body = crew.until(killed, "FAILED")
        crew.go()
        crew.until(other, "SUCCESS")

    assert body["status"] == "The process of the crew ended at writing, with exit code -9."
    assert len(crew.kickoffs) == 2


@pytest.mark.parametrize(("step", "state"), [(GO, "RUNNING"), (ASK, "NOT FOUND")])
def test_stop_ends_its_process_and_no_other(crew, step, state):
    crew = crew(*STEPS, step, DONE)
    with crew.serve():
        stopped, other = crew.kickoff(), crew.kickoff()
        for kickoff_id in (stopped, other):
            crew.until(kickoff_id, state)
        answer = crew.stop(stopped)
        after = crew.status(stopped)["state"]
        eventually(lambda: not exists(crew.pid_of(stopped)))

        assert (answer.json(), after) == ({"status": "stopped", "kickoffId": stopped}, "REVOKED")
        assert (crew.stop(stopped).status_code, exists(crew.pid_of(other))) == (400, True)
        assert crew.status(other)["state"] == state


def test_kept_files_are_private_and_have_no_secret_of_a_webhook(crew, tmp_path):
    crew = crew(DONE)
    keep, storage = crew.keep, crew.storage
    inner, elsewhere = storage / "inner", tmp_path / "elsewhere"
    inner.mkdir(parents=True)
    found = {keep: 0o644, storage: 0o755, inner: 0o775, inner / "flow.db": 0o666, elsewhere: 0o644}
    for path, mode in found.items():
        path.is_dir() or path.touch()
        path.chmod(mode)
    (storage / "link").symlink_to(elsewhere)
    with crew.serve(keep=keep):
        address, proof = "http://a/hidden-path", {"strategy": "bearer", "token": "hidden-token"}
        hook = {"url": address, "authentication": proof}
        crew.until(
            crew.kickoff(webhooks={"events": [], **hook}, taskWebhookUrl=address, humanInputWebhook=hook),
            "SUCCESS",
        )

    assert storage == Path(crew.kickoffs[0]["storage"])
    assert [mode_of(path) for path in found] == [0o600, 0o700, 0o700, 0o600, 0o644]
    assert b"hidden" not in keep.read_bytes()


def test_kept_executions_stay_as_they_were_after_a_restart(crew):
    crew = crew(*STEPS, GO, DONE)
    with crew.serve(keep=crew.keep, at_most=2):
        assert [mode_of(crew.keep), mode_of(crew.storage)] == [0o600, 0o700]
        crew.go()
        done = crew.kickoff()
        before = crew.until(done, "SUCCESS")
        (crew.folder / "go").unlink()
        running, stopped, queued = ids = [crew.kickoff(), crew.kickoff(), crew.kickoff()]
        for kickoff_id in (running, stopped):
            crew.until(kickoff_id, "RUNNING")
        assert crew.status(queued)["state"] == "PENDING"
        for kickoff_id in (queued, stopped):
            crew.stop(kickoff_id)
    with crew.serve(keep=crew.keep):
        assert crew.status(done) == before
        states = [crew.status(kickoff_id)["state"] for kickoff_id in ids]

    assert states == ["FAILED", "REVOKED", "REVOKED"]
    assert queued not in [kickoff["id"] for kickoff in crew.kickoffs]
