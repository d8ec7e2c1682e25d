"""
Run what `make demo` or `make airflow` is about: ``python -m dev.run demo``.

What takes long to import comes after the first word on the screen, and after Ctrl-C is taken care of.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from dev.progress import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNTIL_CTRL_C = {"explore"}
_TERMINATED = 128 + signal.SIGTERM


def main(name: str, *arguments: str) -> int:
    """Run the main function of a module and return the exit code."""
    sys.stdout.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr] # seen at once in a pipe
    return run(lambda: _call(name, *arguments), until_ctrl_c=name in _UNTIL_CTRL_C)


def _call(name: str, *arguments: str) -> int:
    with stage("Loading"):
        failures: Any = importlib.import_module("dev.target").FAILURES
        body: Callable[..., None] = importlib.import_module(f"dev.{name}").main
    try:
        body(*arguments)
    except failures as error:
        print(f"\nThis failed: {error}", file=sys.stderr)
        return 1
    return 0


def run(body: Callable[[], int], *, until_ctrl_c: bool) -> int:
    """
    Run and return the exit code. Ctrl-C and SIGTERM stop it.

    It is 0 after Ctrl-C. What is not to end that way leaves it to make, which gets the same Ctrl-C, to end as
    interrupted: with another code, make would complain besides.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with _terminal_of_its_own() if until_ctrl_c else nullcontext():
        try:
            return body()
        except KeyboardInterrupt as interrupt:
            print("Stopped. Nothing of it runs any more.")
            return _TERMINATED if signal.SIGTERM in interrupt.args else 0


def _interrupt(number: int, _frame: object) -> None:
    """Interrupt once: whoever presses Ctrl-C again does not get a half-stopped Airflow."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


@contextmanager
def _terminal_of_its_own() -> Iterator[None]:
    """Keep Ctrl-C from make, which would end as interrupted what has ended as it should."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        yield
        return
    group = os.getpgrp()
    shared = os.tcgetpgrp(terminal) == group != os.getpid()
    if shared:
        # The system stops whoever takes a terminal from the background. And after a Ctrl-Z nobody would wake this
        # up: the shell knows of make alone.
        for number in (signal.SIGTTOU, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        os.setpgid(0, 0)
        os.tcsetpgrp(terminal, os.getpgrp())
    try:
        yield
    finally:
        if shared:
            os.tcsetpgrp(terminal, group)
        os.close(terminal)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
