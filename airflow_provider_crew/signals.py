"""Keep a task from being interrupted where that would lose what was paid for."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# How a task is ended by Airflow, by its execution_timeout, and by Ctrl-C.
_INTERRUPTIONS = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)


@contextmanager
def interruptions_held_off() -> Iterator[None]:
    """
    Let signals that would interrupt a task wait until the end of the block.

    Handlers are replaced, not masked: a mask holds for one thread only, and Python runs handlers in the main
    thread whichever thread the signal has reached. In other threads nothing is interrupted in the first place.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
    ours = [number for number, handler in handlers.items() if handler is not None]  # None: set from outside Python
    for number in ours:
        signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, handlers[number])
        _deliver(list(dict.fromkeys(arrived)))


def _deliver(arrived: list[int]) -> None:
    """Deliver each of them, also when the handler of the one before raises."""
    if arrived:
        try:
            signal.raise_signal(arrived[0])
        finally:
            _deliver(arrived[1:])
