"""A server from the system's packages that an Airflow needs beside its own processes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from dev.loopback import free_port
from dev.processes import Guardian, Process

if TYPE_CHECKING:
    from types import TracebackType

PAUSE = 0.1


class ServerError(Exception):
    """A server is not installed, or did not come up."""


class NotReadyError(Exception):
    """A server does not answer. The message says what is known."""


class Server(ABC):
    """A server with a folder of its own, on loopback, that does not outlive the Python that started it."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.port = free_port()
        self._guardian: Guardian | None = None
        self._process: Process | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """What an Airflow needs in its environment to use it."""

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Fill its folder, and return the command that runs it."""

    @abstractmethod
    def _ask(self) -> None:
        """Ask it for a sign of life; a NotReadyError says why there was none."""

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.running

    def start(self, timeout: float = 300) -> Self:
        """Start it, or start it again, and return when it answers."""
        try:
            self._process = self._process or self._new_process()
            self._process.start()
            self._wait_for_answer(self._process, timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def crash(self) -> None:
        """End it without any tidying up, as when its machine is lost."""
        if self._process:
            self._process.kill()

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self.crash()
        if self._guardian:
            self._guardian.dismiss()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _new_process(self) -> Process:
        command = self._prepare()
        with (self._folder / "in-use").open("w") as lock:
            self._guardian = Guardian(lock.fileno())
        return Process(self.name, command, dict(os.environ), self._folder / f"{self.name}.log", self._guardian)

    def _wait_for_answer(self, process: Process, timeout: float) -> None:
        until = time.monotonic() + timeout
        while True:
            try:
                self._ask()
            except NotReadyError as error:
                if not process.running or time.monotonic() > until:
                    raise ServerError(f"{self.name} does not answer: {error}\n{process.tail()}") from None
            else:
                return
            time.sleep(PAUSE)
