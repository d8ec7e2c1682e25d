"""Watch the running rows of a batch on one event loop, in the trigger or in the worker."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic.dataclasses import dataclass as validated

from airflow_provider_crew.batch.facts import MOST_IN_GROUP
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.errors import (
    CrewError,
    ExecutionFailed,
    ResponseTooLarge,
    WatchBroken,
    error_record,
)
from airflow_provider_crew.client.models import WHEN_USED, Completed
from airflow_provider_crew.client.progress import ProgressReport
from airflow_provider_crew.client.text import one_line, warn
from airflow_provider_crew.client.watch import WatchRules, WatchState
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import Poller, SteadyClock
from airflow_provider_crew.triggers.events import LARGEST_RESPONSE
from airflow_provider_crew.triggers.watching import hook_of, is_marked, progress_of

__all__ = ["cancel_if_unwanted", "watched"]

log = logging.getLogger(__name__)

_SHARE_OF_WINDOW = 4
# In a worker, starting rows again costs no resumption of the task.
_SHARE_IN_WORKER = 16
_MOST_AT_ONCE = 8
_LONGEST_TROUBLE = 300

# Troubles in which the crew has returned no usable status.
_AWAY: set[Any] = {"silent", "rejected"}

_quiet = logging.getLogger(f"{__name__}.rows")  # thousands of rows would flood the log of the task
_quiet.disabled = True


@validated(frozen=True, slots=True, kw_only=True, config=WHEN_USED)
class RowRules(WatchRules):
    """
    Rules for watching all rows. The deadline is that of the batch.

    ``row_timeout``: seconds that a row may take. ``wake_at``: time at which to start rows again. ``was_away``:
    whether rows start again as soon as the crew responds.
    """

    row_timeout: float | None
    wake_at: float | None
    was_away: bool


@dataclass(slots=True)
class _Watched:
    state: WatchState
    began_at: float | None
    first_poll_at: float | None
    task: asyncio.Task[None] | None = None


@dataclass
class Watching:
    """
    Watch of the running rows on one event loop.

    :param window: Number of executions that may run concurrently.
    :param largest: Size of the largest status that a triggerer reads, in bytes. A worker reads all.
    """

    hook: CrewHook
    window: int
    largest: int | None = None
    results: dict[str, Completed] = field(default_factory=dict)
    """Rows that have completed, for a worker. In a triggerer, the event names them."""
    ends: dict[str, CrewError | None] = field(default_factory=dict)
    """Rows that have ended. ``None`` if the worker has to read how."""

    def __post_init__(self) -> None:
        self._rows: dict[str, _Watched] = {}
        self._began = time.monotonic()

    async def follow(self, running: Sequence[Sequence[Any]], rules: RowRules) -> None:
        """
        Watch rows that are not watched yet.

        :param running: Name, kickoff ID, address, kickoff time, begin, troubles and first poll of each row.
        :param rules: Rules for polling the rows.
        """
        self.rules = rules
        for name, kickoff_id, address, sent_at, began_at, troubles, first_poll_at in running:
            if name not in self._rows:
                state = WatchState(sent_at, troubles={**troubles})
                row = self._rows[name] = _Watched(state, began_at, first_poll_at)
                own = replace(rules, address=address)
                row.task = asyncio.create_task(self._watch(name, row, kickoff_id, own))

    async def to_wake(self, running: Sequence[Sequence[Any]], rules: RowRules, saw: Callable[[], None]) -> None:
        """Watch rows until that is due, or until the deadline."""
        now = SteadyClock()
        await self.follow(running, rules)
        try:
            while not (self.is_due() or now() >= rules.deadline):
                saw()
                await asyncio.sleep(timing.BATCH_LOOK)
        finally:
            tasks = [row.task for row in self._rows.values() if row.task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def is_due(self) -> bool:
        """
        Return whether a share of the window has ended, anything has after a while, or rows may start again.

        Raise an exception that no watch of a row expects.
        """
        for row in self._rows.values():
            if row.task and row.task.done() and (error := row.task.exception()):
                raise error
        quota, patience, longest = self.window // _SHARE_OF_WINDOW, timing.BATCH_WAIT, math.inf
        if self.largest is None:
            quota = min(self.window // _SHARE_IN_WORKER, MOST_IN_GROUP)
            patience, longest = timing.BATCH_TURN, timing.BATCH_WAIT
        lasted = time.monotonic() - self._began
        if self.news >= min(len(self._rows), max(1, quota)) or lasted >= (patience if self.news else longest):
            return True
        return time.time() >= (self.rules.wake_at or math.inf) or (self.rules.was_away and not self.is_away)

    @property
    def news(self) -> int:
        """Number of rows that have ended."""
        return len(self.ends)

    @property
    def is_quick(self) -> bool:
        """Whether rows end so quickly that a deferral, which takes 10 to 20 s, would leave places empty."""
        ended = [row.state for name, row in self._rows.items() if name in self.ends]
        states = ended or [row.state for row in self._rows.values()]
        took = sum(state.polled_at - state.started_at for state in states)
        return 0 < took <= len(states) * timing.BATCH_QUICK

    async def _watch(self, name: str, row: _Watched, kickoff_id: str, rules: RowRules) -> None:
        def deadline() -> float:
            """Return the time at which the row's time is over. It begins with the execution: deployments queue."""
            limit, began = rules.row_timeout, row.began_at
            # Beyond the deadline of the batch, which ends all of them at once.
            return float(began + limit if limit and began else rules.deadline + timing.BATCH_WAIT)

        about: Any = {"kicked_off_at": row.state.started_at, "first_poll_at": row.first_poll_at}
        poller = Poller(self.hook, kickoff_id, replace(rules, deadline=deadline(), **about), row.state)
        poller.log = _quiet

        def saw(_report: ProgressReport, _is_news: bool) -> None:  # noqa: FBT001 - an Observer
            memory = poller.watch.memory
            if row.began_at is None and memory.has_begun:
                row.began_at = memory.history.began_at or poller.watch.polled_at
                poller.watch.rules = replace(poller.watch.rules, deadline=deadline())

        poller.observer = saw
        await asyncio.sleep(poller.watch.spread().poll_again_in)
        try:
            completed = await poller.to_end_async(largest=self.largest)
        except CrewError as error:
            is_too_large = isinstance(error, WatchBroken) and isinstance(error.cause, ResponseTooLarge)
            # The reasons of many failed rows would be too large for an event, so the worker reads them.
            is_read_later = self.largest is not None and (is_too_large or isinstance(error, ExecutionFailed))
            self.ends[name] = None if is_read_later else error
        else:
            if self.largest is None:
                self.results[name] = completed
            self.ends[name] = None

    @property
    def trouble(self) -> str:
        """Trouble of a row now, if any has one."""
        said = (row.state.said_trouble for row in self._rows.values())
        return one_line(next(filter(None, said), ""), _LONGEST_TROUBLE)

    @property
    def is_away(self) -> bool:
        """Whether the crew has returned no usable status for any row."""
        return bool(self._rows) and all(_AWAY & row.state.troubles.keys() for row in self._rows.values())

    def taken(self) -> tuple[dict[str, Any], dict[str, Completed]]:
        """Return the event and the results, and forget the rows that have ended."""
        event, self._began = self.as_event(), time.monotonic()
        for name in event["ends"]:
            del self.ends[name], self._rows[name]
        return event, {name: self.results.pop(name) for name in event["ends"] if name in self.results}

    def as_event(self) -> dict[str, Any]:
        """Return what has ended as plain data, and what the next watch has to know."""
        # Without its troubles, a row that has no status would begin a new outage in each watch.
        known = {name: [row.began_at, row.state.troubles, row.first_poll_at] for name, row in self._rows.items()}
        return {
            "ends": {name: error and error_record(error) for name, error in [*self.ends.items()]},
            "is_away": self.is_away,
            "is_quick": self.is_quick,
            "known": {name: found for name, found in known.items() if any(found)},
        }


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread, so that rows are polled while others start. Its tasks end with it."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


class BatchProgress:
    """
    Progress of a batch for the Crew tab, and the line in the log, while rows are being watched.

    :param logged_at: Time of the last line.
    """

    has_content = True

    def __init__(self, known: Mapping[str, Any], log: Any, logged_at: float) -> None:
        self._known, self._log, self.logged_at = dict(known), log, logged_at
        self._running = known["batch"]["running"]

    def saw(self, watching: Watching) -> bool:
        """Update the progress, and return whether there is news."""
        is_news = bool(self._known["batch"]["unread"] != watching.news)
        now = self._known["batch"] | {"running": self._running - watching.news, "unread": watching.news}
        fields = {"batch": now, "doing": line_of(now), "trouble": watching.trouble, "polled_at": time.time()}
        self._known |= fields
        if time.time() - self.logged_at >= timing.BATCH_WAIT:
            self.logged_at = time.time()
            self._log.info("Batch: %s. %s", line_of(now), watching.trouble)
        return is_news

    def as_dict(self) -> dict[str, Any]:
        """Return the progress."""
        return {**self._known}


def line_of(batch: Mapping[str, Any]) -> str:
    """Return the state of a batch, for the log, the Crew tab and alerts."""
    ended = f"{batch['ended'] + batch['unread']:,} of {count_of_rows(batch['total'])} ended"
    return ", ".join((ended, *counted(batch, "failed", "uncertain", "running")))


def count_of_rows(count: int) -> str:
    """Return a number of rows in words."""
    return f"{count:,} row{'' if count == 1 else 's'}"


def counted(batch: Mapping[str, Any], *names: str) -> list[str]:
    """Return the numbers of rows, each with its name, unless there are none."""
    return [f"{batch[name]:,} {name.replace('waiting', 'not started')}" for name in names if batch[name]]


async def watched(trigger: Any) -> dict[str, Any]:
    """Watch the rows of a trigger, and return its event."""
    writer = progress_of(trigger)
    report = BatchProgress(trigger.shown["progress"], trigger.log, trigger.shown["logged_at"])
    watching = Watching(hook_of(trigger), trigger.window, LARGEST_RESPONSE)

    def saw() -> None:
        is_news = report.saw(watching)
        if writer:
            writer.saw(report, is_news)  # type: ignore[arg-type]

    try:
        await watching.to_wake(trigger.running, RowRules(**trigger.rules), saw)
    finally:
        if writer:
            writer.close()
    return watching.as_event()


async def cancel_if_unwanted(trigger: Any) -> None:
    """Cancel all running rows if Airflow has ended the task. A task that was cleared continues to watch them."""
    if not await is_marked(trigger):
        return
    hook, places = hook_of(trigger), asyncio.Semaphore(_MOST_AT_ONCE)
    failed: list[str] = []

    async def cancel(kickoff_id: str, address: str) -> None:
        async with places:
            try:
                await hook.cancel_async(kickoff_id, address=address)
            except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
                failed.append(kickoff_id)
                warn(trigger.log, f"Execution {kickoff_id}: {getattr(error, 'event', error)}")

    await asyncio.gather(*(cancel(*row[1:3]) for row in trigger.running))
    count = len(trigger.running)
    trigger.log.info("Airflow ended the task: %d of %d executions were cancelled.", count - len(failed), count)
