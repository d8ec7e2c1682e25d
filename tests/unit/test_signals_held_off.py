"""Signals are held off while a block runs, and none of them is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import Any, Self

import pytest

from airflow_provider_crew.durable import signals
from airflow_provider_crew.durable.signals import DeferSignals

HELD_OFF = [signal.SIGTERM, signal.SIGALRM, signal.SIGINT]


class Interrupted(BaseException):
    """What Airflow's handlers raise."""


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Note the signals that arrive, in order, as they arrive."""
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda number, _: arrived.append(number)) for number in HELD_OFF}
    yield arrived
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in HELD_OFF]


def work() -> None:
    """Run for long enough to be interrupted."""
    time.sleep(0.02)


@pytest.mark.parametrize("number", HELD_OFF)
def test_signal_is_handled_after_the_block(heard: list[int], number: int) -> None:
    with DeferSignals():
        os.kill(os.getpid(), number)
        work()
        assert heard == []

    assert heard == [number]


def test_callback_is_called_at_each_arrival(heard: list[int]) -> None:
    told: list[str] = []
    with DeferSignals(lambda: told.append("arrived")):
        assert told == []
        os.kill(os.getpid(), signal.SIGTERM)
        work()
        assert told == ["arrived"]
        os.kill(os.getpid(), signal.SIGALRM)
        work()
        assert told == ["arrived", "arrived"]
        assert heard == []

    assert told == ["arrived", "arrived"]
    assert heard == [signal.SIGTERM, signal.SIGALRM]


def test_signals_interrupt_a_sleep(heard: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        assert heard == [signal.SIGTERM]
        os.kill(os.getpid(), signal.SIGINT)
        work()
        assert heard == [signal.SIGTERM, signal.SIGINT]

    monkeypatch.setattr(signals, "time", SimpleNamespace(sleep=sleep))
    told: list[str] = []
    with DeferSignals(lambda: told.append("arrived")) as held:
        os.kill(os.getpid(), signal.SIGTERM)
        work()
        held.sleep(1.0)
        os.kill(os.getpid(), signal.SIGALRM)
        work()
        assert heard == [signal.SIGTERM, signal.SIGINT]

    assert heard == [signal.SIGTERM, signal.SIGINT, signal.SIGALRM]
    assert told == ["arrived", "arrived"]


def test_alarm_set_before_the_block_is_handled_after_it(heard: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with DeferSignals():
        while signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
            time.sleep(0.01)
        assert heard == []

    assert heard == [signal.SIGALRM]


def test_signals_are_handled_once_in_their_order(heard: list[int]) -> None:
    with DeferSignals():
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGALRM):
            os.kill(os.getpid(), number)
            work()

    assert heard == [signal.SIGALRM, signal.SIGTERM]


def test_handlers_are_restored_without_a_signal(heard: list[int]) -> None:
    before = handlers()
    with DeferSignals():
        assert handlers() != before

    assert handlers() == before
    assert heard == []


def test_handlers_are_restored_after_an_exception(heard: list[int]) -> None:
    before = handlers()
    with pytest.raises(KeyError), DeferSignals():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        work()
        raise KeyError("broken")

    assert handlers() == before
    assert heard == [signal.SIGTERM]


def test_exception_of_a_handler_is_raised_after_the_block(heard: list[int]) -> None:
    def raising(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGTERM, raising)
    finished = False
    with pytest.raises(Interrupted), DeferSignals():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        work()
        finished = True

    assert finished
    assert signal.getsignal(signal.SIGTERM) is raising
    assert heard == []


def test_exception_of_the_block_is_the_context(heard: list[int]) -> None:
    def raising(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, raising)
    with pytest.raises(Interrupted) as caught, DeferSignals():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGALRM)
        work()
        raise KeyError("broken")

    assert isinstance(caught.value.__context__, KeyError)
    assert heard == []


def test_ignored_signal_stays_ignored(heard: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with DeferSignals():
        os.kill(os.getpid(), signal.SIGINT)
        work()

    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert heard == []


def test_blocks_can_be_nested(heard: list[int]) -> None:
    with DeferSignals():
        with DeferSignals():
            os.kill(os.getpid(), signal.SIGTERM)
            work()
        assert heard == []

    assert heard == [signal.SIGTERM]


def test_other_signals_are_not_deferred(heard: list[int]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with DeferSignals():
            os.kill(os.getpid(), signal.SIGUSR1)
            work()
            assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_thread_leaves_the_handlers_alone(heard: list[int]) -> None:
    before, seen = handlers(), []

    def in_thread() -> None:
        with DeferSignals():
            seen.append(handlers())
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    work()

    assert seen == [before]
    assert heard == [signal.SIGTERM]


def test_default_handler_ends_the_process_after_the_block() -> None:
    program = """if True:
        import os, signal
        from airflow_provider_crew.durable.signals import DeferSignals
        with DeferSignals():
            os.kill(os.getpid(), signal.SIGTERM)
            print("remembered", flush=True)
        print("too far", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "remembered\n"


SEAMS = 200


class Seams:
    """Send a signal to this process at one line of the module, counted in the order in which the lines run."""

    def __init__(self, number: int, at: int) -> None:
        self._number, self._left = number, at
        self.sent = False

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != signals.__file__:
            return None
        if event in {"call", "line"} and not self.sent:
            self.sent = self._left == 0
            self._left -= 1
            if self.sent:
                os.kill(os.getpid(), self._number)
        return self._trace


def raising_handlers(heard: list[int]) -> None:
    """Let each signal interrupt what it meets, as Airflow's handlers do."""

    def interrupt(number: int, _frame: object) -> None:
        heard.append(number)
        raise Interrupted

    for number in HELD_OFF:
        signal.signal(number, interrupt)


def hold_with_a_pause(in_block: list[int]) -> None:
    """Hold signals off twice, with a pause that lets them through, while some arrive in the block."""
    with DeferSignals() as held:
        held.sleep(0.0)
        for number in in_block:
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("in_block", [[], [signal.SIGTERM], [signal.SIGALRM, signal.SIGTERM]], ids=repr)
@pytest.mark.parametrize("number", HELD_OFF)
def test_signal_at_any_line_leaves_no_handler_behind(heard: list[int], number: int, in_block: list[int]) -> None:
    raising_handlers(heard)
    before = handlers()
    for at in range(SEAMS):
        heard.clear()
        seams = Seams(number, at)
        with suppress(Interrupted), seams:
            hold_with_a_pause(in_block)
        assert handlers() == before, at
        if not seams.sent:
            break
        assert number in heard, at
    assert 20 < at < SEAMS - 1


@pytest.mark.parametrize("number", HELD_OFF)
def test_signal_at_the_end_loses_no_other(heard: list[int], number: int) -> None:
    raising_handlers(heard)
    other = signal.SIGALRM if number == signal.SIGTERM else signal.SIGTERM
    for at in range(SEAMS):
        heard.clear()
        held, seams = DeferSignals(), Seams(number, at)
        held.__enter__()
        os.kill(os.getpid(), other)
        with suppress(Interrupted), seams:
            held.__exit__()
        assert set(heard) == ({other, number} if seams.sent else {other}), at
        if not seams.sent:
            break
    assert 5 < at < SEAMS - 1


def test_many_signals_leave_none_pending(heard: list[int]) -> None:
    program = f"import os\nfor _ in range(3000):\n  os.kill({os.getpid()}, {int(signal.SIGALRM)})\n"
    armed: list[bool] = []

    def interrupt(number: int, _frame: object) -> None:
        heard.append(number)
        if armed:
            armed.clear()
            raise Interrupted

    for number in HELD_OFF:
        signal.signal(number, interrupt)
    before = handlers()
    with subprocess.Popen([sys.executable, "-c", program]) as sender:
        while sender.poll() is None:
            with suppress(Interrupted):
                armed.append(True)
                with DeferSignals() as held:
                    held.sleep(0.0)
                armed.clear()
    armed.clear()
    heard.clear()
    for number in HELD_OFF:
        os.kill(os.getpid(), number)
        until = time.monotonic() + 60
        while number not in heard and time.monotonic() < until:
            time.sleep(0.001)  # another thread of the process may get the signal, and take a moment

    assert heard == HELD_OFF
    assert handlers() == before
