"""Keep a task from being interrupted where that would lose what was paid for."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

# How a task is ended by Airflow, by its execution_timeout, and by Ctrl-C.
_INTERRUPTIONS = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)


class InterruptionsHeldOff:
    """
    Let signals that would interrupt a task wait until the end of the block; ``on_arrival`` is told of each.

    Handlers are replaced, not masked: a mask holds for one thread only, and Python runs handlers in the main
    thread whichever thread the signal has reached. In other threads nothing is interrupted in the first place.
    """

    def __init__(self, on_arrival: Callable[[], None] = lambda: None) -> None:
        self._on_arrival = on_arrival
        self._arrived: list[int] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Hold signals off."""
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._hold) for number in _INTERRUPTIONS}
        return self

    def __exit__(self, *_: object) -> None:
        """Deliver those that have arrived, each also when the handler of the one before raises."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        arrived, self._arrived = list(dict.fromkeys(self._arrived)), []
        _deliver(arrived)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let signals interrupt the block."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def _hold(self, number: int, _frame: object) -> None:
        self._arrived.append(number)
        self._on_arrival()


def _deliver(arrived: list[int]) -> None:
    if arrived:
        try:
            signal.raise_signal(arrived[0])
        finally:
            _deliver(arrived[1:])
