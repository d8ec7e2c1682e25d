"""What a trigger leaves in XCom while its task is deferred, so that people see how the execution is doing."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from airflow.providers.common.compat.sdk import conf
from asgiref.sync import sync_to_async

from airflow_provider_crew.client.progress import PAUSE, PROGRESS, ProgressReport
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.compat import encoded_xcom, leave_encoded_xcom, leaves_progress


def encoding(ti: Any, told: dict[str, Any]) -> Future[Any]:
    """
    Begin to encode what is told of an execution, and return where it will be.

    Not in a thread of a pool: one that is stuck would be missing there, and keep its process from ending.
    """
    encoded: Future[Any] = Future()
    encoded.set_running_or_notify_cancel()  # so that who stops waiting cancels nothing
    threading.Thread(target=partial(_encode, encoded, ti, told), name="crew-progress", daemon=True).start()
    return encoded


def _encode(encoded: Future[Any], ti: Any, told: dict[str, Any]) -> None:
    try:
        encoded.set_result(encoded_xcom(ti, PROGRESS, told))
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits
        encoded.set_exception(error)


log = logging.getLogger(__name__)

# In seconds, between two XComs of one triggerer: the longer of the two. Each costs as much as fifteen polls or so.
# Where many executions are watched, all XComs together are to cost less than a tenth of the polls.
_PAUSE_FOR_ALL = 2.0
_PAUSE_FOR_EACH = 0.01


def progress_of(ti: Any) -> "TriggerProgress | None":
    """Return what leaves the progress of a deferred task, where Airflow can and its operators want that."""
    if ti is None or not leaves_progress():  # dag.test() tells a trigger of no task
        return None
    try:
        wanted = conf.getboolean("crew", "progress_xcom", fallback=True)
    except Exception as error:  # noqa: BLE001 - a setting that cannot be read may not end the watch
        warn(log, f"Triggers push no progress, because [crew] progress_xcom is unreadable: {error}")
        return None
    return TriggerProgress(ti) if wanted else None


class TriggerProgress:
    """
    Leaves what is new, soon, beside the polls.

    All that watch on one event loop take turns, so that many cost no more than a few, and so that a backend of
    XComs that blocks holds up nothing else. What is new meanwhile is left along with what waits. What still waits
    at the end goes to the task, with the event.
    """

    def __init__(self, ti: Any) -> None:
        self._ti = ti
        self._turns = _turns.setdefault(asyncio.get_running_loop(), _Turns())
        self._turns.takers += 1
        self._news: ProgressReport | None = None
        self._leaving: asyncio.Task[None] | None = None

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - as an observer of polls
        """See to it that what a poll has brought is left, if it is news."""
        if is_news:
            self._news = report
            if self._leaving is None or self._leaving.done():
                self._leaving = asyncio.create_task(self._leave())

    def close(self) -> None:
        """Leave nothing any more: what comes now is the task's to tell."""
        self._turns.takers -= 1
        if self._leaving:
            self._leaving.cancel()

    async def _leave(self) -> None:
        while self._news:
            await self._turns.take(self._leave_now)
            await asyncio.sleep(PAUSE)

    async def _leave_now(self) -> None:
        report, self._news = self._news, None
        if report:
            encoded = await self._turns.encoded(self._ti, report.told())
            # In a thread, from which every triggerer finds back to its event loop.
            await sync_to_async(leave_encoded_xcom)(self._ti, PROGRESS, encoded)


class _Turns:
    """One XCom at a time, and no more than that many in a while, in the order in which there was news."""

    def __init__(self) -> None:
        self.takers = 0
        self._one_at_a_time = asyncio.Lock()
        self._not_before = 0.0
        self._encoding: Future[Any] | None = None
        self._has_complained = False

    async def take(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Take a turn. What fails is said once, and is worth no more."""
        async with self._one_at_a_time:
            await asyncio.sleep(max(self._not_before - time.monotonic(), 0.0))
            if self._encoding:  # for one who has gone meanwhile
                await asyncio.gather(asyncio.wrap_future(self._encoding), return_exceptions=True)
            try:
                await leave()
            except Exception as error:  # noqa: BLE001
                if not self._has_complained:
                    warn(log, f"Progress was not pushed to XCom. Polling continues: {error}")
                self._has_complained = True
            finally:
                self._not_before = time.monotonic() + max(_PAUSE_FOR_ALL, _PAUSE_FOR_EACH * self.takers)

    async def encoded(self, ti: Any, told: dict[str, Any]) -> Any:
        """Have the backend encode it, which may never come back."""
        self._encoding = encoding(ti, told)
        return await asyncio.wrap_future(self._encoding)


# By event loop.
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()
