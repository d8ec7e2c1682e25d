"""
End processes with all that they started.

Airflow gives every task a process group of its own, so a signal to the group of the scheduler misses the tasks.
What they still share is the session.

Run as a program, this is the guardian of a stack: it is told sessions on its standard input, and ends them when
that is closed. The system closes it when the stack's Python is gone, also by a SIGKILL or a crash.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Collection

GRACE = 5.0


def end(sessions: Collection[int], grace: float = GRACE) -> None:
    """
    Ask the leaders to end, and kill what is left of the sessions after the grace.

    Only the leaders: each of them ends its own children, and a triggerer whose child is told too waits in vain.
    """
    for leader in sessions:
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, signal.SIGTERM)
    until = time.monotonic() + grace
    while _members(sessions) and time.monotonic() < until:
        time.sleep(0.05)
    kill(sessions)


def kill(sessions: Collection[int]) -> None:
    """Kill at once, as when the machine is lost."""
    while members := _members(sessions):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _members(sessions: Collection[int]) -> list[int]:
    return [pid for pid in psutil.pids() if _session(pid) in sessions and not _is_zombie(pid)]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _guard() -> None:
    sessions: set[int] = set()
    for line in sys.stdin:
        word, session = line.split()
        (sessions.add if word == "started" else sessions.discard)(int(session))
    end(sessions)


if __name__ == "__main__":
    _guard()
