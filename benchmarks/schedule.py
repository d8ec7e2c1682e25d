"""How many requests a wait sends and how late it notices the end: the real watch, with a clock that only jumps."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_crew.client.models import Running
from airflow_provider_crew.client.watch import Watch, WatchRules
from airflow_provider_crew.client.wording import duration
from benchmarks.report import Figure, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN_TIMES = (10.0, 60.0, 600.0, 7_200.0)
_INTERVALS = (10.0, 30.0, 60.0, None)
_KICKED_OFF_AT = 1_750_000_000.0
_A_DAY = 24 * 60 * 60.0
_SEEDS_A_ROUND = 100

_METHOD = """\
These figures come from the watch that operator, sensor and trigger use, with a simulated clock that jumps from \
one poll to the next, and answers that take no time. The trigger starts with the execution, and its first poll \
is jittered, as after every deferral. _By age_ is the default without a fixed interval: the pause is 5 s, or a \
twentieth of the age if that is more. Median and range over {seeds} seeds. The delay is the time from the end of \
the execution to the poll that notices it."""


@dataclass(frozen=True, slots=True)
class _Wait:
    requests: int
    delay: float


def measure(rounds: int) -> list[Table]:
    """Play every run time with every interval."""
    seeds = range(rounds * _SEEDS_A_ROUND)
    rows = [_row(run_time, interval, seeds) for run_time, interval in itertools.product(_RUN_TIMES, _INTERVALS)]
    columns = ["duration of the execution", "interval", "requests", "delay", "worst delay / duration"]
    return [Table("Requests per execution", _METHOD.format(seeds=len(seeds)), columns, rows)]


def _row(run_time: float, interval: float | None, seeds: range) -> list[object]:
    waits = [_wait(run_time, interval, random.Random(seed)) for seed in seeds]  # noqa: S311 - to be repeatable
    return [
        duration(run_time),
        f"{interval:g} s" if interval else "by age",
        Figure.of(wait.requests for wait in waits),
        Figure.of((wait.delay for wait in waits), "s"),
        f"{max(wait.delay for wait in waits) / run_time:.1%}",
    ]


def _wait(run_time: float, interval: float | None, chance: random.Random) -> _Wait:
    for requests, since in enumerate(_looks(interval, chance), start=1):
        if since >= run_time:
            return _Wait(requests, since - run_time)
    raise AssertionError("The watch ended before the execution.")


def _looks(interval: float | None, chance: random.Random) -> Iterator[float]:
    """Yield the age of the execution at every poll, as long as it is going on."""
    now = _KICKED_OFF_AT
    rules = WatchRules(poll_interval=interval, deadline=now + _A_DAY, kicked_off_at=now)
    watch = Watch("simulated", rules, clock=lambda: now, random=chance.random)
    running = Running(status="running", kickoff_id="simulated", word="running")
    step = watch.spread()
    while not step.error:
        now += step.poll_again_in
        yield now - _KICKED_OFF_AT
        step = watch.on_status(running)
