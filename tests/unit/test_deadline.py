"""Whoever waits for an exchange leaves when time is over, and nothing is sent after that."""

from __future__ import annotations

import signal
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.service.deadline import Exchange


def test_returns_and_raises_what_the_work_does() -> None:
    def fail() -> None:
        raise KeyError("a defect")

    assert Exchange(lambda: 7).outcome(60) == 7
    with pytest.raises(KeyError, match="a defect"):
        Exchange(fail).outcome(60)


def test_nothing_leaves_once_nobody_waits_any_more() -> None:
    """A connection that is made too late must not take a kickoff along that was said not to have been sent."""
    go_on, ended = threading.Event(), threading.Event()
    told: list[Exception] = []

    def work() -> None:
        go_on.wait(60)
        try:
            exchange.goes_by(SimpleNamespace(sock=None))  # type: ignore[arg-type]
        except TimeoutError as error:
            told.append(error)
        ended.set()

    exchange: Exchange[Any] = Exchange(work)
    with pytest.raises(TimeoutError):
        exchange.outcome(0.01)
    assert exchange.sent is False

    go_on.set()
    assert ended.wait(60)
    assert told
    assert exchange.sent is False


def test_a_signal_that_does_not_end_the_wait_is_noticed_in_the_middle_of_it() -> None:
    noticed = threading.Event()

    def work() -> bool:
        time.sleep(0.2)  # the main thread waits by now, and is not woken by what comes to this one
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return noticed.wait(30)

    before = signal.signal(signal.SIGUSR1, lambda *_: noticed.set())
    try:
        assert Exchange(work).outcome(60) is True
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_ends_the_wait_at_once_and_the_connection_with_it() -> None:
    ours, theirs = socket.socketpair()

    def interrupt(*_: object) -> None:
        raise InterruptedError("execution_timeout")

    def work() -> bytes:
        exchange.goes_by(SimpleNamespace(sock=ours))  # type: ignore[arg-type]
        return ours.recv(1)

    exchange = Exchange(work)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(InterruptedError, match="execution_timeout"):
            exchange.outcome(3600)  # which pytest would not wait for
    finally:
        signal.signal(signal.SIGALRM, before)

    assert exchange.sent is True
    assert theirs.recv(1) == b""
    ours.close()
    theirs.close()
