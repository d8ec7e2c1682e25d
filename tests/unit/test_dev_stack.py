"""How the Airflow of the demo and the system tests starts and ends, played by programs that start faster."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from dev import sessions
from dev.processes import Guardian, Process
from dev.stack import AirflowStack, StackError

# A child in a process group of its own, as Airflow gives one to every task.
FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def guardian(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        guardian = Guardian(lock.fileno())
    yield guardian
    guardian.dismiss()


@pytest.fixture
def family(tmp_path, guardian):
    process = Process("family", [sys.executable, "-c", FAMILY], {}, tmp_path / "logs" / "family.log", guardian)
    process.start()
    wait_until(lambda: "ready" in process.tail())
    yield process
    process.kill()


def wait_until(condition) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def stack(home, **commands: list[str]) -> AirflowStack:
    """Return a stack that finds a migrated database and starts these modules in place of Airflow's."""
    (home / "airflow.db").touch()
    (home / "database-version").write_text(version("apache-airflow"))
    airflow = AirflowStack(home, home)
    airflow._commands = {name.replace("_", "-"): command for name, command in commands.items()}
    return airflow


def test_process_that_dies_is_named_with_its_last_lines(tmp_path):
    airflow = stack(tmp_path, api_server=["http.server", "nonsense"])

    with pytest.raises(StackError) as caught:
        airflow.start()

    log = tmp_path / "logs" / "processes" / "api-server.log"
    assert str(caught.value).startswith(f"Airflow's api-server ended with 2.\n\nThe end of {log}:\n")
    assert "invalid int value: 'nonsense'" in str(caught.value)


def test_unhealthy_process_is_named_and_stopped(tmp_path):
    airflow = stack(tmp_path, api_server=["http.server", "--bind", "127.0.0.1", "0"])

    with pytest.raises(StackError, match=r"not healthy after 1 s\. Missing: api-server\n"):
        airflow.start(timeout=1)

    assert not airflow.processes["api-server"].running


def test_home_is_used_once_at_a_time(tmp_path):
    guardian = stack(tmp_path)._new_guardian()

    with pytest.raises(StackError, match="Another Airflow runs in"):
        stack(tmp_path).start()
    guardian.dismiss()
    stack(tmp_path)._new_guardian().dismiss()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_children_in_their_own_groups_end_too(family, how):
    session = family.pid
    assert len(sessions._members([session])) == 2

    getattr(family, how)(*([0.1] if how == "stop" else []))

    assert sessions._members([session]) == []
    assert family.exit_code < 0


def test_processes_do_not_outlive_a_killed_python(tmp_path):
    script = f"""
import os, signal, sys
from pathlib import Path
from dev.processes import Guardian, Process
process = Process("sleep", ["sleep", "60"], {{}}, Path({str(tmp_path / "log")!r}), Guardian(sys.stderr.fileno()))
process.start()
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)

    wait_until(lambda: not sessions._members([int(killed.stdout)]))
    assert killed.returncode == -9
