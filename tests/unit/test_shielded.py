"""Work that signals do not interrupt, with real signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from airflow_provider_crew.task.shielded import shielded


class Rung(BaseException):
    """Raised by the signal handler, as Airflow's timeout does."""


@pytest.fixture
def ring() -> Iterator[None]:
    def handler(*_: object) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("ring")
def test_second_signal_ends_the_wait_but_not_the_work() -> None:
    goes_on, done = threading.Event(), threading.Event()

    def work(interrupted: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGALRM)
        assert interrupted.wait(240)
        os.kill(os.getpid(), signal.SIGALRM)
        assert goes_on.wait(240)
        done.set()

    with pytest.raises(Rung):
        shielded(work)

    is_early = not done.is_set()
    goes_on.set()
    assert done.wait(240)
    assert is_early
