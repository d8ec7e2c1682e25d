"""Work that signals do not interrupt."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

T = TypeVar("T")

_PAUSE = 0.5


def shielded(work: Callable[[Event], T], meanwhile: Callable[[], None]) -> T:
    """
    Return the result of work that a signal must not interrupt, such as sending a kickoff and recording its ID.

    Python delivers signals to the main thread only. So the work runs in another thread, and an exception of a
    signal handler arrives when the work has ended. A second signal may end the wait, but not the work.

    :param work: Takes an event that is set as soon as a signal has raised. It should end early if it can.
    :param meanwhile: Called twice a second in the calling thread.
    """
    interrupted = Event()
    with ThreadPoolExecutor(1, "crew-kickoff") as pool:  # the end of the block waits for the work
        future = pool.submit(work, interrupted)
        try:
            while not wait((future,), _PAUSE).done:
                meanwhile()
            return future.result()
        except BaseException:
            interrupted.set()
            raise
