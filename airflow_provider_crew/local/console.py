"""Output of the command: a line for each event, and one for all repeated requests."""

import contextlib
import json
import sys
import time

from airflow_provider_crew.local.record import ReceivedRequest

# Paths whose last response is remembered.
_MOST_PATHS = 1000


class Console:
    """
    Prints to standard output.

    A GET request with the same response as the one before it, such as a poll, is only counted. A terminal shows
    the count at once. In a file, it comes before the next line.
    """

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._repeated = 0

    def request(self, request: ReceivedRequest) -> None:
        """Print or count a request."""
        parts = [request.method, request.path, str(request.status or "no response")]
        if request.fault:
            parts.append(f"(fault: {request.fault})")
        if request.operation == "kickoff" and isinstance(request.json, dict):
            parts.append(json.dumps(request.json.get("inputs")))
        text = " ".join(parts)
        if request.method == "GET" and self._last.get(request.path) == text:
            self._count()
            return
        if len(self._last) == _MOST_PATHS:
            self._last.clear()
        self._last[request.path] = text
        self.event(text, request.received_at)

    def event(self, text: str, at: float | None = None) -> None:
        """Print a line with the time, by default the current time."""
        self.line(f"{_time(at)} {text}")

    def line(self, text: str = "") -> None:
        """Print a line."""
        if self._repeated:
            _write("\n" if sys.stdout.isatty() else f"{self._repetitions}\n")
            self._repeated = 0
        _write(f"{text}\n")

    def _count(self) -> None:
        self._repeated += 1
        if sys.stdout.isatty():
            _write(f"\r{self._repetitions}")

    @property
    def _repetitions(self) -> str:
        return f"{_time()} {self._repeated} repeated request{'s' if self._repeated > 1 else ''}"


def _time(at: float | None = None) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _write(text: str) -> None:
    # Crews print any character, and some terminals can't display all of them.
    written = text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding)
    # Executions continue even if the output is no longer read.
    with contextlib.suppress(OSError):
        sys.stdout.write(written)
        sys.stdout.flush()
