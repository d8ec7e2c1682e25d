"""What people see of `make demo` and `make airflow`, and how both end, played by programs that start faster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dev import target
from dev.loopback import HOST, free_port, is_free
from dev.processes import Guardian, Process
from tests.unit.test_dev_stack import wait_until

ROOT = Path(__file__).parents[2]
# Gives a command a terminal of 40 columns. What is written to this program is typed there.
TERMINAL = """
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if not pid:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
os.dup2(terminal, 3)
if not os.fork():
    while typed := os.read(0, 1):
        os.write(3, typed)
    os._exit(0)
try:
    while shown := os.read(3, 4096):
        os.write(1, shown)
except OSError:
    pass
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
os.write(1, f"ended with {ended}".encode())
"""
# Says what it does in the end, and takes its time for that.
BODY = """
import sys, time
from dev.progress import stage
from dev.run import run

def body():
    try:
        with stage("At work", lambda: "waiting for the end of the world"):
            print("ready", flush=True)
            time.sleep(60)
    finally:
        print("tidying up", flush=True)
        time.sleep(1)
        print("tidied up", flush=True)

sys.exit(run(body, until_ctrl_c=bool(int(sys.argv[1]))))
"""


def _of_a_person() -> dict[str, str]:
    """Leave out what the terminal and the make that run the tests say of themselves."""
    theirs = {"COLUMNS", "LINES", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    return {name: value for name, value in os.environ.items() if name not in theirs}


class Terminal:
    """A command in a terminal."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.shown = ""
        self._process = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, *command],
            cwd=folder,
            env=_of_a_person() | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while part := os.read(self._process.stdout.fileno(), 4096):
            self.shown += part.decode()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.shown)

    def press_ctrl_c(self) -> None:
        os.write(self._process.stdin.fileno(), b"\x03")

    def end(self) -> str:
        """Wait for its end, and return how that was."""
        self._process.stdin.close()
        self._reader.join(60)
        self._process.stdout.close()
        self._process.wait(60)
        return self.shown.partition("ended with ")[2]


def make(folder: Path, recipe: str) -> Terminal:
    (folder / "body.py").write_text(BODY)
    (folder / "Makefile").write_text(f"target:\n\t@{recipe}\n")
    return Terminal(folder, "make")


@pytest.mark.parametrize(("until_ctrl_c", "code"), [(1, "0"), (0, f"{-signal.SIGINT}")])
def test_ctrl_c_ends_make_without_an_error(tmp_path, until_ctrl_c, code):
    """What is to end that way has succeeded; what is not leaves it to make to end as interrupted."""
    terminal = make(tmp_path, f"{sys.executable} body.py {until_ctrl_c}")
    terminal.wait_for("ready")
    terminal.press_ctrl_c()

    assert terminal.end() == code
    assert "tidied up\r\nStopped. Nothing of it runs any more.\r\n" in terminal.shown
    assert "***" not in terminal.shown
    assert "Traceback" not in terminal.shown


def test_second_ctrl_c_leaves_nothing_half_stopped(tmp_path):
    terminal = make(tmp_path, f"{sys.executable} body.py 1")
    terminal.wait_for("ready")
    terminal.press_ctrl_c()
    terminal.wait_for("tidying up")
    terminal.press_ctrl_c()
    terminal.end()

    assert "tidied up\r\nStopped." in terminal.shown
    assert "Traceback" not in terminal.shown


def test_process_is_known_before_ctrl_c_is_handled(tmp_path, monkeypatch):
    """The guardian ends what it knows."""
    told = []

    def interrupted(*command, **options) -> subprocess.Popen[bytes]:
        signal.raise_signal(signal.SIGINT)
        return subprocess_popen(*command, **options)

    with (tmp_path / "lock").open("w") as lock:
        guardian = Guardian(lock.fileno())
    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    monkeypatch.setattr(guardian, "tell", lambda word, session: told.append((word, session)))
    process = Process("sleep", ["sleep", "60"], {}, tmp_path / "log", guardian)

    with pytest.raises(KeyboardInterrupt):
        process.start()

    assert told == [("started", process.pid)]
    process.kill()
    guardian.dismiss()


def test_port_is_the_same_unless_it_is_in_use(monkeypatch):
    monkeypatch.setattr(target, "_PORT", free_port())
    assert target.usual_port() == target._PORT

    with socket.create_server((HOST, target._PORT)):
        assert not is_free(target._PORT)
        assert target.usual_port() != target._PORT


def test_port_just_left_is_free():
    """A connection that the server has closed keeps the port for a minute."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            server.accept()[0].close()
            time.sleep(0.1)
            client.recv(1)

    assert is_free(port)
