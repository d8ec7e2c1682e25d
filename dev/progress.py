"""
Show what goes on, and for how long so far.

``python -m dev.progress TITLE COMMAND…`` shows the run of a command. It needs nothing but Python: make shows with
it how the environment is installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TICK = 0.2
# So often something is said where no line can be rewritten.
_REMINDER = 30.0


@contextmanager
def stage(title: str, detail: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Show that this goes on until the block ends. ``detail``, asked again and again, tells what it waits for."""
    show = _Line().show if on_terminal() else _Lines().show
    began = time.monotonic()
    over = threading.Event()

    def text(more: str) -> str:
        return f"{title}: {more}" if more else title

    def follow() -> None:
        while not over.wait(_TICK):
            show(time.monotonic() - began, text(detail()))

    follower = threading.Thread(target=follow, daemon=True)
    end = "failed"
    show(0, title)
    try:
        follower.start()
        yield
        end = "done"
    except KeyboardInterrupt:
        end = "stopped"
        raise
    finally:
        over.set()
        follower.join()
        show(time.monotonic() - began, text(end), last=True)


def on_terminal() -> bool:
    """Tell whether a line can be rewritten."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class _Line:
    """One line that is rewritten."""

    def show(self, seconds: float, text: str, *, last: bool = False) -> None:
        line = _with_time(seconds, text)[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{line}", end="\n" if last else "", flush=True)


class _Lines:
    """A line for each change, and now and then one that says that there was none."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0.0

    def show(self, seconds: float, text: str, *, last: bool = False) -> None:
        if last or text != self._text or seconds - self._at >= _REMINDER:
            print(_with_time(seconds, text), flush=True)
            self._text, self._at = text, seconds


def _with_time(seconds: float, text: str) -> str:
    return f"{seconds:4.0f} s  {text}"


def _run(title: str, command: Sequence[str]) -> int:
    """Run a command and return its exit code. What it has said is shown only when it fails."""
    with tempfile.TemporaryFile() as said:
        try:
            with stage(title):
                subprocess.run(  # noqa: S603 - the command is the Makefile's
                    command, check=True, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
                )
        except subprocess.CalledProcessError as error:
            said.seek(0)
            print(said.read().decode(errors="replace"), file=sys.stderr)
            return abs(error.returncode)
    return 0


def main(title: str, *command: str) -> int:
    """Run a command, and end as it does. Make is not to go on after a Ctrl-C: that ends this as a signal does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(title, command)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        raise


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
