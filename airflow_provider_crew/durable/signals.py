"""Signals that end a task, deferred while its kickoff is being sent."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

# Signals that end a task: from Airflow, from its execution_timeout, and from Ctrl-C.
_INTERRUPTIONS = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)


class DeferSignals:
    """
    Context manager that defers signals until the end of the block. It calls ``on_arrival`` for each of them.

    It replaces handlers instead of masking signals. A mask applies to one thread only, and Python runs handlers in
    the main thread regardless of the thread that received the signal. Other threads are never interrupted.

    Python replaces one handler at a time, so a signal may arrive between two replacements, and its own handler may
    raise there. A replacement therefore holds signals only while ``_arrived`` is a list, which begins and ends in
    one step. At any other time it passes the signal on and removes itself.
    """

    def __init__(self, on_arrival: Callable[[], None] = lambda: None) -> None:
        self._on_arrival = on_arrival
        self._arrived: list[int] | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Start to defer signals."""
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
            # None is a handler that Python has not installed and cannot restore.
            self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}
            try:
                for number in self._handlers:
                    signal.signal(number, self._hold)
                self._arrived = []
            except BaseException:
                self._restore()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """Deliver every deferred signal, even if the handler of the previous one raises."""
        try:
            # Signals are still deferred, so nothing interrupts the delivery.
            self._deliver(self._arrived)
        finally:
            self._let_go()

    def sleep(self, seconds: float) -> None:
        """Sleep, and let signals interrupt that."""
        # Not a generator: a signal between its frames would run the last line only when it is collected, after the
        # end of the block, and the process would defer signals from then on.
        self.__exit__()
        try:
            time.sleep(seconds)
        finally:
            self.__enter__()

    def _hold(self, number: int, _frame: FrameType | None) -> None:
        if self._arrived is None:
            signal.signal(number, self._handlers[number])
            signal.raise_signal(number)
            return
        if number not in self._arrived:
            self._arrived.append(number)
        self._on_arrival()

    def _let_go(self) -> None:
        late: list[int] | None = None
        try:
            late, self._arrived = self._arrived, None
            self._restore()
        finally:
            # Restore again, because a handler restored by the first call may have interrupted that call.
            self._restore()
            self._deliver(late)

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _deliver(self, arrived: list[int] | None) -> None:
        if arrived:
            try:
                self._pass_on(arrived.pop(0))
            finally:
                self._deliver(arrived)

    def _pass_on(self, number: int) -> None:
        handler = self._handlers[number]
        if callable(handler):
            handler(number, None)
        elif handler == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
