"""Work that signals do not interrupt."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

_PAUSE = 0.5


def shielded(work: Callable[[Event], T]) -> T:
    """
    Return the result of work that a signal must not interrupt, such as sending a kickoff and recording its ID.

    Python runs signal handlers in the main thread only. So the work runs in another thread, and the exception of a
    handler arrives when the work has ended. A second signal may end the wait, but not the work.

    :param work: Takes an event that is set as soon as a handler has raised. It should end early if it can.
    """
    begin, interrupted, done, outcome = Event(), Event(), Event(), Future[T]()

    def run() -> None:
        begin.wait()
        try:
            if not interrupted.is_set():  # while the thread was being started
                outcome.set_result(work(interrupted))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            outcome.set_exception(error)
        finally:
            done.set()

    try:
        Thread(target=run, name="crew-kickoff").start()
        begin.set()
        # Not join(): if a signal handler raises there, Python takes the thread for ended (bpo-45274). With a
        # timeout, because Python may not notice a signal that arrives just before the main thread blocks.
        while not done.wait(_PAUSE):
            pass
    except BaseException:
        interrupted.set()
        while begin.is_set() and not done.wait(_PAUSE):
            pass
        begin.set()
        raise
    return outcome.result()
