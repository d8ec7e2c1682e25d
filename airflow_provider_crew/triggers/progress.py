"""Progress that a trigger pushes to XCom while its task is deferred."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from airflow.providers.common.compat.sdk import conf
from asgiref.sync import sync_to_async

from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.progress import PAUSE, PROGRESS, ProgressReport, ended
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.versions import encoded_xcom, leave_encoded_xcom, leaves_progress


def encoding(ti: Any, told: dict[str, Any]) -> Future[Any]:
    """
    Start encoding the progress of an execution and return a future.

    Use a daemon thread: a stuck encoder would occupy a pool's thread and prevent the process from ending.
    """
    encoded: Future[Any] = Future()
    encoded.set_running_or_notify_cancel()  # so that cancelling a wait does not cancel the future
    threading.Thread(target=partial(_encode, encoded, ti, told), name="crew-progress", daemon=True).start()
    return encoded


def _encode(encoded: Future[Any], ti: Any, told: dict[str, Any]) -> None:
    try:
        encoded.set_result(encoded_xcom(ti, PROGRESS, told))
    except BaseException as error:  # noqa: BLE001 - raised in the waiting coroutine
        encoded.set_exception(error)


log = logging.getLogger(__name__)

# Seconds between two XComs of one triggerer: the longer of the two applies. One XCom costs about as much as 15
# polls. With many executions, this keeps all XComs below a tenth of the cost of the polls.
_PAUSE_FOR_ALL = 2.0
_PAUSE_FOR_EACH = 0.01


def progress_of(ti: Any) -> "TriggerProgress | None":
    """Return the progress writer of a deferred task, or None if Airflow lacks support or it is turned off."""
    if ti is None or not leaves_progress():  # dag.test() passes no task instance to a trigger
        return None
    try:
        wanted = conf.getboolean("crew", "progress_xcom", fallback=True)
    except Exception as error:  # noqa: BLE001 - an invalid setting must not end the watch
        warn(log, f"Triggers push no progress, because [crew] progress_xcom is unreadable: {error}")
        return None
    return TriggerProgress(ti) if wanted else None


class TriggerProgress:
    """
    Progress writer that pushes news to XCom between polls.

    All writers on one event loop take turns. This limits the total cost, and an XCom backend that blocks delays
    nothing else. Later news replaces news that is still waiting. At the end, unpushed news reaches the task with
    the event.
    """

    def __init__(self, ti: Any) -> None:
        self._ti = ti
        self._turns = _turns.setdefault(asyncio.get_running_loop(), _Turns())
        self._turns.takers += 1
        self._news: ProgressReport | None = None
        self._leaving: asyncio.Task[None] | None = None

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Schedule a push if a poll brought news."""
        if is_news:
            self._news = report
            if self._leaving is None or self._leaving.done():
                self._leaving = asyncio.create_task(self._leave())

    def close(self) -> None:
        """Stop pushing. From here on, the task reports the progress."""
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
            await self._push(report.as_dict())

    async def leave_end(self, report: ProgressReport, error: CrewError) -> None:
        """Push the error with which the trigger itself has ended the execution, and stop pushing."""
        self.close()
        with suppress(Exception):  # Airflow 3.4 stores no XCom of a task that has ended
            await self._push(ended(report.as_dict(), error, time.time()))

    async def _push(self, told: dict[str, Any]) -> None:
        encoded = await self._turns.encoded(self._ti, told)
        # sync_to_async works with the event loop of every triggerer.
        await sync_to_async(leave_encoded_xcom)(self._ti, PROGRESS, encoded)


class _Turns:
    """Queue that pushes one XCom at a time, at a limited rate, in the order of the news."""

    def __init__(self) -> None:
        self.takers = 0
        self._one_at_a_time = asyncio.Lock()
        self._not_before = 0.0
        self._encoding: Future[Any] | None = None
        self._has_complained = False

    async def take(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Wait for a turn and push. Log only the first failure."""
        async with self._one_at_a_time:
            await asyncio.sleep(max(self._not_before - time.monotonic(), 0.0))
            if self._encoding:  # still encoding for a writer that was cancelled
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
        """Encode a value with the XCom backend, which may hang."""
        self._encoding = encoding(ti, told)
        return await asyncio.wrap_future(self._encoding)


# Queues by event loop.
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()
