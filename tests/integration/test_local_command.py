"""``python -m airflow_provider_crew.local``, as a person at a terminal and as a process."""

import contextlib
import http.client
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, __main__

COMMAND = [sys.executable, "-m", "airflow_provider_crew.local"]
EXPORT = re.compile(r"export AIRFLOW_CONN_CREW_DEFAULT='(.*)' CREW_TOKEN=(.*)")
REQUEST = r"^\d\d:\d\d:\d\d "


class Console:
    """A running command and the lines it prints."""

    def __init__(self, process):
        self.process = process
        self.lines = []

    def line(self, pattern):
        """Read on to a line like this."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(pattern, line):
                return found
        pytest.fail(f"ended without {pattern!r}: {self.lines}")


@pytest.fixture
def console():
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--token", "it's secret"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield Console(process)
        process.kill()


class TestProcess:
    def test_serves_what_it_says_and_ends_quietly_with_ctrl_c(self, console):
        uri, token = console.line(EXPORT).groups()
        address = urlsplit(uri)
        assert unquote(address.password) == "it's secret"
        assert shlex.split(token) == ["it's secret"]

        url = f"http://{address.hostname}:{address.port}"
        headers = {"Authorization": "Bearer it's secret"}
        inputs = {"topic": "tides", "audience": "sailors"}
        started = requests.post(f"{url}/kickoff", json={"inputs": inputs}, headers=headers, timeout=60).json()
        console.line(REQUEST + rf"POST /kickoff 200 {re.escape(json.dumps(inputs))}$")
        requests.get(f"{url}/status/{started['kickoff_id']}", headers=headers, timeout=60)
        console.line(REQUEST + rf"GET /status/{started['kickoff_id']} 200$")

        console.process.send_signal(signal.SIGINT)
        rest, errors = console.process.communicate(timeout=60)

        assert (rest.strip(), errors, console.process.returncode) == ("", "", 0)
        assert sum("secret" in line for line in console.lines) == 1

    @pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
    def test_the_curl_line_works_as_it_is_printed(self, console):
        export = console.line(EXPORT)[0]
        curl = console.line("curl .*")[0]

        answer = subprocess.run(  # noqa: S602 - it is a line for a shell
            f"{export}; {curl} --silent", shell=True, check=True, capture_output=True, text=True
        )

        assert set(json.loads(answer.stdout)) == {"kickoff_id"}


class TestMain:
    def test_says_when_the_port_is_taken(self, capsys):
        with LocalCrewService() as other:
            code = __main__.main(["--port", str(other.port)])

        assert code == 1
        assert capsys.readouterr().err == (
            f"Cannot listen on port {other.port}: Address already in use. Choose another with --port.\n"
        )

    def test_says_what_is_wrong_with_a_scenario(self, capsys, tmp_path):
        file = tmp_path / "scenario.toml"
        file.write_text("colour = 'red'")

        assert __main__.main(["--scenario", str(file)]) == 1
        assert capsys.readouterr().err == f"{file}: colour: Extra inputs are not permitted\n"

    def test_dialect_option_comes_before_the_scenario(self, capsys, monkeypatch, tmp_path):
        file = tmp_path / "scenario.toml"
        file.write_text('dialect = "deployed"\ntoken = "local-organization-token"')
        met: list[int] = []
        monkeypatch.setattr(__main__, "threading", SimpleNamespace(Event=lambda: Listener(capsys, met)))

        for given in ((), ("--dialect", "documented")):
            assert __main__.main(["--port", "0", "--scenario", str(file), *given]) == 0

        assert met == [200, 404]

    @pytest.mark.parametrize(
        ("given", "ends"),
        [
            (("--seconds", "0"), {"status": "completed"}),
            (("--seconds", "3600"), {"status": "running"}),
            (("--seconds", "0", "--fail", "out of credit"), {"status": "error", "error": "out of credit"}),
            (("--seconds", "0", "--fail"), {"status": "error", "error": __main__._REASON}),
            (("--fail",), {"status": "running"}),
        ],
    )
    def test_takes_as_long_and_fails_as_it_is_asked_to(self, capsys, monkeypatch, given, ends):
        met: list[dict[str, Any]] = []
        monkeypatch.setattr(__main__, "threading", SimpleNamespace(Event=lambda: Employer(capsys, met)))

        assert __main__.main(["--port", "0", *given]) == 0

        assert [{name: body.get(name) for name in ends} for body in met] == [ends]

    def test_prints_one_line_per_request(self, capsys, monkeypatch, tmp_path):
        file = tmp_path / "scenario.toml"
        file.write_text('[[faults]]\nkind = "answer"\nstatus = 503\n[[faults]]\nkind = "reset"\n')
        monkeypatch.setattr(__main__, "threading", SimpleNamespace(Event=lambda: Visitor(capsys)))

        assert __main__.main(["--port", "0", "--scenario", str(file)]) == 0

        printed = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines() if line]
        assert printed == [
            "GET /inputs 503 (fault: answer)",
            "GET /inputs no answer (fault: reset)",
            "GET /inputs 401",
            "POST /kickoff 401",
            'POST /kickoff 422 {"topic": "tides"}',
        ]


def exported(capsys) -> tuple[str, str]:
    """Read the address and the token off the terminal."""
    found = EXPORT.search(capsys.readouterr().out)
    assert found
    return found[1], found[2]


class Visitor:
    """Stands in for the wait at the terminal: makes some requests, then presses Ctrl-C."""

    def __init__(self, capsys):
        uri, token = exported(capsys)
        self.port = urlsplit(uri).port
        self.known = {"Authorization": f"Bearer {token}"}

    def wait(self):
        kickoffs: list[tuple[str, str, dict[str, str]]] = [
            ("POST", "/kickoff", {}),
            ("POST", "/kickoff", self.known),
        ]
        for method, path, headers in [("GET", "/inputs", {})] * 3 + kickoffs:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            with contextlib.closing(connection), contextlib.suppress(ConnectionResetError):
                connection.request(method, path, body='{"inputs": {"topic": "tides"}}', headers=headers)
                connection.getresponse()
        raise KeyboardInterrupt


class Caller:
    """Stands in for the wait at the terminal: asks, keeps what is answered, then presses Ctrl-C."""

    def __init__(self, capsys, met):
        uri, token = exported(capsys)
        self.url = f"http://127.0.0.1:{urlsplit(uri).port}"
        self.headers = {"Authorization": f"Bearer {token}"}
        self.met = met

    def wait(self):
        self.met.append(self.answer())
        raise KeyboardInterrupt

    def answer(self):
        raise NotImplementedError

    def status(self, kickoff_id):
        return requests.get(f"{self.url}/status/{kickoff_id}", headers=self.headers, timeout=60)


class Employer(Caller):
    """Kicks off, and asks how it stands."""

    def answer(self):
        body = {"inputs": {"topic": "tides", "audience": "sailors"}}
        begun = requests.post(f"{self.url}/kickoff", json=body, headers=self.headers, timeout=60).json()
        return self.status(begun["kickoff_id"]).json()


class Listener(Caller):
    """Asks for an unknown execution."""

    def answer(self):
        return self.status("nobody").status_code
