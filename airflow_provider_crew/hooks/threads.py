"""Work in a thread of its own, so that a wait for it can end before it does."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(name: str, work: Callable[[], T]) -> Future[T]:
    """
    Start the work, and return where its outcome will be.

    Not in a thread of a pool: one that is stuck would be missing there, and keep its process from ending.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # so that who stops waiting cancels nothing
    run = copy_context().run
    threading.Thread(target=run, args=(_work, outcome, work), name=name, daemon=True).start()
    return outcome


def _work(outcome: Future[Any], work: Callable[[], Any]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits
        outcome.set_exception(error)
