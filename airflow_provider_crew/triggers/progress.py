"""Progress that a trigger pushes to XCom while its task is deferred."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from airflow_provider_crew.api_server import push_xcom
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.progress import PROGRESS, Pace, ProgressReport, ended
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.threads import XCOMS, in_thread

log = logging.getLogger(__name__)


def progress_of(trigger: CrewExecutionTrigger) -> "TriggerProgress | None":
    """Return the progress writer of a deferred task, or None if it is turned off."""
    if trigger.task_instance is None or not is_on("progress_xcom", log):  # dag.test() passes no task instance
        return None
    return TriggerProgress(trigger.task_instance, trigger.shown)


class TriggerProgress:
    """
    Progress writer that pushes news to XCom between polls.

    At the end, unpushed news reaches the task with the event.

    :param ti: Task instance of the trigger.
    :param shown: Sentences of the task for the Crew tab and alerts.
    """

    def __init__(self, ti: Any, shown: Mapping[str, Any]) -> None:
        self._ti = ti
        self._sentences = {name: shown[name] for name in ("choices", "if_lost") if name in shown}
        self._shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
        self._shared.writers += 1
        self._pace = Pace(lambda: self._shared.writers)
        self._is_closed = False
        self._pushing: asyncio.Task[None] | None = None

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Schedule a push after a poll, if it is due."""
        is_due = report.has_content and self._pace.is_due(is_news)
        if is_due and (self._pushing is None or self._pushing.done()):
            self._pushing = asyncio.create_task(self._push_report(report))

    def close(self) -> None:
        """Stop pushing. From here on, the task reports the progress."""
        self._shared.writers -= 1
        # Not cancelled: a thread that hangs has to keep the lock, or each writer would occupy another thread.
        self._is_closed = True

    async def leave_end(self, report: ProgressReport, error: CrewError) -> None:
        """Push the error with which the trigger itself has ended the execution, and stop pushing."""
        self.close()
        async with self._shared.lock:
            with suppress(Exception):  # Airflow 3.4 stores no XCom of a task that has ended
                await self._push(ended(report.as_dict(), error, time.time()))

    async def _push_report(self, report: ProgressReport) -> None:
        async with self._shared.lock:
            if self._is_closed:  # while it waited for the lock
                return
            self._pace.pushed()
            try:
                value = self._sentences | report.as_dict()
                value["stale_after"] += self._pace.refresh - timing.PROGRESS_REFRESH
                await self._push(value)
            except Exception as error:  # noqa: BLE001 - progress is best effort
                if not self._shared.has_failed:
                    warn(log, f"Progress was not pushed to XCom, but polling continues: {error}")
                self._shared.has_failed = True
            await asyncio.sleep(timing.PROGRESS_TURN)

    async def _push(self, value: dict[str, Any]) -> None:
        value["try_number"] = self._ti.try_number
        await in_thread(XCOMS, push_xcom, self._ti, PROGRESS, value, is_limited=False)


class _Shared:
    """State of all writers on one event loop. A custom XCom backend may hang, but only in one thread."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.writers = 0
        self.has_failed = False


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()
