"""Keep a task from being interrupted where that would lose what was paid for."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How a task is ended by Airflow, by its execution_timeout, and by Ctrl-C.
_INTERRUPTIONS = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)


class HeldOff:
    """
    Signals that wait until they may interrupt.

    Handlers are replaced, not masked: a mask holds for one thread only, and Python runs handlers in the main
    thread whichever thread the signal has reached. In other threads nothing is interrupted in the first place.
    """

    def __init__(self, on_arrival: Callable[[], None]) -> None:
        self._on_arrival = on_arrival
        self._arrived: list[int] = []
        self._handlers: dict[int, Any] = {}

    def begin(self) -> None:
        """Hold signals off."""
        if threading.current_thread() is not threading.main_thread():
            return
        handlers = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
        # None: set from outside Python, which cannot set it again.
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}
        for number in self._handlers:
            signal.signal(number, self._hold)

    def _hold(self, number: int, _frame: object) -> None:
        self._arrived.append(number)
        self._on_arrival()

    def end(self) -> None:
        """Deliver those that have arrived, and hold no more off."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        arrived, self._arrived = list(dict.fromkeys(self._arrived)), []
        _deliver(arrived)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let signals interrupt the block."""
        try:
            self.end()
            yield
        finally:
            self.begin()


@contextmanager
def interruptions_held_off(on_arrival: Callable[[], None] = lambda: None) -> Iterator[HeldOff]:
    """Let signals that would interrupt a task wait until the end of the block; ``on_arrival`` is told of each."""
    held = HeldOff(on_arrival)
    held.begin()
    try:
        yield held
    finally:
        held.end()


def _deliver(arrived: list[int]) -> None:
    """Deliver each of them, also when the handler of the one before raises."""
    if arrived:
        try:
            signal.raise_signal(arrived[0])
        finally:
            _deliver(arrived[1:])
