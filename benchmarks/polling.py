"""
One contestant, watching many executions, alone in a process: ``polls.py`` starts it and reads what it measured.

It begins to watch them evenly over one interval, as tasks in a live Airflow come and go. When it watches all, it
first times the event loop, and then, without that, measures what polling costs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import re
import resource
import selectors
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.pollers import CONTESTANTS
from benchmarks.stub import Stub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_crew.client.models import Completed, Failed, Running
    from airflow_provider_crew.client.watch import Step
    from benchmarks import pollers

_WARM_UP_INTERVAL = 0.1
_SHORTEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure. The interval and the duration, in seconds, are the same for every contestant."""

    contestant: str
    executions: int
    interval: float
    duration: float
    stub: dict[str, Any]
    lateness: bool = False
    profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came out. Polls and CPU time were measured together; turns of the event loop are per poll."""

    polls: int
    cpu: float
    connections: int
    polls_in_all: int
    turns: float
    memory: float
    stall: float
    own_stall: float
    lateness: list[float]
    ended: list[str]


class _Stopwatch(selectors.DefaultSelector):
    """
    Counts the turns of the event loop, from one search for events to the next, and notes the longest.

    The garbage collector walks through all objects of the process, whoever made them, so it is counted apart. A
    task that wakes regularly would notice the same, but waking it costs as much as many a poll. This costs so
    much that CPU time is not measured meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.longest = self.longest_own = 0.0
        self._began, self._cpu = time.monotonic(), time.thread_time()
        self._collecting = 0.0
        gc.callbacks.append(self._collector)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.longest = max(self.longest, time.monotonic() - self._began)
        self.longest_own = max(self.longest_own, time.thread_time() - self._cpu - self._collecting)
        self.turns += 1
        events = super().select(timeout)
        self._began, self._cpu = time.monotonic(), time.thread_time()
        self._collecting = 0.0
        return events

    def forget(self) -> None:
        self.turns = 0
        self.longest = self.longest_own = 0.0

    def stop(self) -> None:
        self.select = super().select  # type: ignore[method-assign]
        gc.callbacks.remove(self._collector)

    def _collector(self, phase: str, _told: dict[str, int]) -> None:
        if threading.current_thread() is threading.main_thread():
            self._collecting += time.thread_time() if phase == "stop" else -time.thread_time()


@contextmanager
def _lateness(*, wanted: bool) -> Iterator[list[float]]:
    """Note how long after each of this provider's polls was due, by its watch, the answer came."""
    if not wanted:
        yield []
        return
    from airflow_provider_crew.client.watch import Watch

    lateness: list[float] = []
    due: dict[str, float] = {}

    on_status = Watch.on_status

    def timed(watch: Watch, execution: Running | Completed | Failed) -> Step:
        now = time.monotonic()
        if watch.kickoff_id in due:
            lateness.append(now - due[watch.kickoff_id])
        step = on_status(watch, execution)
        due[watch.kickoff_id] = now + step.poll_again_in
        return step

    with patch.object(Watch, "on_status", timed):
        yield lateness


async def _measure(plan: Plan, stopwatch: _Stopwatch) -> Measured:
    stub = Stub(**plan.stub)
    async with CONTESTANTS[plan.contestant](stub) as watch:
        await warm_up(watch, stub)
        gc.collect()
        _forget_peak_memory()
        memory = _memory("VmRSS")
        with _lateness(wanted=plan.lateness) as lateness:
            tasks = await _start(watch, plan)
            before = await stub.counts()
            stopwatch.forget()
            # A trigger may spread its first poll over an interval by itself.
            await asyncio.sleep(max(plan.interval * 1.2, _SHORTEST))
            stopwatch.stop()
            begun = await stub.counts()
            with _profile(plan.profile):
                cpu = _cpu()
                await asyncio.sleep(plan.duration)
                cpu = _cpu() - cpu
            ended = await stub.counts()
        return Measured(
            polls=ended.polls - begun.polls,
            cpu=cpu,
            connections=ended.connections,
            polls_in_all=ended.polls,
            turns=stopwatch.turns / max(begun.polls - before.polls, 1),
            memory=(_memory("VmHWM") - memory) / plan.executions,
            stall=stopwatch.longest,
            own_stall=stopwatch.longest_own,
            lateness=lateness,
            ended=[repr(task.exception() or task.result()) for task in tasks if task.done()],
        )


def started(watch: pollers.Watch, number: int, interval: float) -> asyncio.Task[object]:
    """Start to watch one execution."""
    return asyncio.create_task(_watched(watch, number, interval))


async def _watched(watch: pollers.Watch, number: int, interval: float) -> object:
    import greenback

    # As the triggerer runs triggers. For every contestant, since each would run in a triggerer.
    await greenback.ensure_portal()
    return await watch(number, interval)


async def _tell(plan: Plan, stopwatch: _Stopwatch) -> None:
    print(json.dumps(asdict(await _measure(plan, stopwatch))), flush=True)
    # How long it takes to cancel ten thousand, and to wait for threads, is not measured.
    os._exit(0)


async def warm_up(watch: pollers.Watch, stub: Stub) -> None:
    """Watch one execution until it has been polled twice, so that late imports are done."""
    task = started(watch, 0, _WARM_UP_INTERVAL)
    while (await stub.counts()).polls < 2:  # noqa: PLR2004 - twice
        if task.done():
            raise RuntimeError(f"It ended: {task.exception() or task.result()!r}")
        await asyncio.sleep(_WARM_UP_INTERVAL)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _start(watch: pollers.Watch, plan: Plan) -> list[asyncio.Task[object]]:
    begun = time.monotonic()
    tasks = []
    for number in range(1, plan.executions + 1):
        tasks.append(started(watch, number, plan.interval))
        await asyncio.sleep(begun + number * plan.interval / plan.executions - time.monotonic())
    return tasks


@contextmanager
def _profile(path: str) -> Iterator[None]:
    if not path:
        yield
        return
    from cProfile import Profile

    with Profile() as profile:
        yield
    profile.dump_stats(path)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory(kind: str) -> float:
    """Read a figure of this process: VmRSS is what it has now, VmHWM the most that it ever had."""
    found = re.search(
        rf"^{kind}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE
    )
    return int(found[1]) * 1024.0 if found else math.nan


def _forget_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def log_as_a_triggerer() -> None:
    """Log what the triggerer would send to its supervisor, but send it nowhere."""
    from airflow.sdk.log import configure_logging

    nowhere = Path(os.devnull).open("wb", buffering=0)  # noqa: SIM115 - it stays open as long as this process
    configure_logging(json_output=True, output=nowhere, sending_to_supervisor=True)
    # It would send what ends this process there, too.
    sys.excepthook = sys.__excepthook__


def _main() -> None:
    log_as_a_triggerer()
    stopwatch = _Stopwatch()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(stopwatch)) as runner:
        runner.run(_tell(Plan(**json.loads(sys.argv[1])), stopwatch))


if __name__ == "__main__":
    _main()
