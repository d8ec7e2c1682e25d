"""A process in a session of its own, its output in a file, that does not outlive the Python that started it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from airflow_provider_crew.task.stop import shielded
from dev import sessions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TAIL = 15


class Guardian:
    """
    Ends the sessions it knows when this Python is gone, however it went.

    Another process, because nothing in this one runs after a SIGKILL. It keeps ``lock`` open until it is done.
    """

    def __init__(self, lock: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and a file beside this one
            [sys.executable, "-I", sessions.__file__],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            pass_fds=[lock],
            # Ctrl-C goes to every process of the terminal's group; this one has to outlive it.
            start_new_session=True,
        )

    def tell(self, word: str, session: int) -> None:
        """Tell that a session has ``started`` or ``ended``."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(f"{word} {session}\n")

    def dismiss(self) -> None:
        """Let it end what is left, and wait for that."""
        self._process.communicate()


class Process:
    """One process, to be started, stopped, killed and started again."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, guardian: Guardian
    ) -> None:
        self.name = name
        self.log = log
        self.started_at = 0.0
        self._command = command
        self._environment = environment
        self._guardian = guardian
        self._process: subprocess.Popen[bytes] | None = None
        self._session: int | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None as long as it has not ended."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it, or start it again."""
        if self.running:
            raise RuntimeError(f"{self.name} is running already")
        self.kill()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.started_at = time.time()
        # A Ctrl-C between the start and the guardian's knowing of it would leave the process behind.
        shielded(lambda _: self._start())

    def _start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._session = self._process.pid
        self._guardian.tell("started", self._session)

    def stop(self, grace: float = sessions.GRACE) -> None:
        """Ask it to end, and kill what is left of it and its children after the grace."""
        stop_all([self], grace)

    def kill(self) -> None:
        """Kill it and its children at once, as when their machine is lost."""
        stop_all([self], grace=None)

    def tail(self) -> str:
        """Return the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-_TAIL:])

    def take_session(self) -> int | None:
        """Return its session to whoever ends it, once: the system may give the number to another program then."""
        session, self._session = self._session, None
        return session

    def reap(self, session: int) -> None:
        """Take note that its session was ended."""
        if self._process:
            self._process.wait()
        self._guardian.tell("ended", session)


def stop_all(processes: Sequence[Process], grace: float | None = sessions.GRACE) -> None:
    """Stop them side by side; without a grace, kill them."""
    ending = {session: process for process in processes if (session := process.take_session())}
    if grace is None:
        sessions.kill(ending)
    else:
        sessions.end(ending, grace)
    for session, process in ending.items():
        process.reap(session)
