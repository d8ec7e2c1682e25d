"""What one more triggerer brings: how executions are shared out, and what each process holds and uses."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from benchmarks.report import Figure, Table
from benchmarks.seeding import MOST, POLL_INTERVAL
from benchmarks.triggerer import cpu, prepared, rows, seed, wait_for_polls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.poll_recorder import PollRecorder
    from benchmarks.stack import Benched
    from dev.postgres import PostgresServer
    from dev.processes import Process

# How many executions, and how many triggerers.
_SETUPS = ((MOST // 2, 1), (MOST, 1), (MOST, 2), (2 * MOST, 2))
_PATIENCE = 300.0
_TEXT = """\
As in [a real triggerer](#3-a-real-triggerer), with one or two triggerers that start together. Each execution is \
polled every {interval:.0f} s. Rounds, in turn: {rounds}. _All polled_ is the time from their start until each \
execution was polled. _CPU_ is that of loop and supervisor in the next {interval:.0f} s. _Memory_ and \
_connections_ are those at the end of that time. Shared memory is counted once for each triggerer. With two \
triggerers, each round gives one figure for each."""
_COLUMNS = (
    "deferred tasks",
    "triggerers",
    "all polled, s",
    "tasks, each",
    "CPU s per min, each",
    "memory, MB, each",
    "connections of PostgreSQL, each",
)


@dataclass(frozen=True, slots=True)
class _Use:
    """What one triggerer holds and uses."""

    cpu: float
    memory: float
    connections: int


@dataclass(frozen=True, slots=True)
class _Trial:
    all_polled_after: float
    tasks: list[int]
    uses: list[_Use]


def measure(rounds: int) -> list[Table]:
    """Let the setups take turns, each time with new triggerers."""
    rounds = max(rounds // 2, 1)  # each takes as long as several that need no Airflow
    found: dict[tuple[int, int], list[_Trial]] = {setup: [] for setup in _SETUPS}
    with prepared() as (benched, service):
        for _ in range(rounds):
            for (executions, triggerers), trials in found.items():
                trials.append(_trial(benched, service, executions, triggerers))
    text = _TEXT.format(interval=POLL_INTERVAL, rounds=rounds)
    return [Table("Two triggerers", text, _COLUMNS, [_row(*setup, trials) for setup, trials in found.items()])]


def _row(executions: int, triggerers: int, trials: list[_Trial]) -> list[object]:
    uses = [use for trial in trials for use in trial.uses]
    return [
        f"{executions:,}",
        triggerers,
        Figure.of(trial.all_polled_after for trial in trials),
        Figure.of(tasks for trial in trials for tasks in trial.tasks),
        Figure.of(use.cpu for use in uses),
        Figure.of(use.memory for use in uses),
        Figure.of(use.connections for use in uses),
    ]


def _trial(benched: Benched, service: PollRecorder, executions: int, triggerers: int) -> _Trial:
    seed(benched, "ours", executions)
    service.forget()
    with _started(benched, triggerers) as started:
        began = min(triggerer.started_at for triggerer in started)
        wait_for_polls(service, executions, 1, _PATIENCE)
        after = max(times[0] for times in service.polls()) - began
        before = [_cpu(triggerer) for triggerer in started]
        time.sleep(POLL_INTERVAL)
        used = [_cpu(triggerer) - earlier for triggerer, earlier in zip(started, before, strict=True)]
        shares = rows(benched, "SELECT count(*) FROM trigger GROUP BY triggerer_id")
        uses = [_use(benched, triggerer, seconds) for triggerer, seconds in zip(started, used, strict=True)]
    return _Trial(after, [tasks for (tasks,) in shares], uses)


@contextmanager
def _started(benched: Benched, triggerers: int) -> Iterator[list[Process]]:
    first = benched.airflow.processes["triggerer"]
    first.start()
    started = [first] + [benched.airflow.start_another("triggerer") for _ in range(triggerers - 1)]
    try:
        yield started
    finally:
        for triggerer in started:
            triggerer.stop()


def _use(benched: Benched, triggerer: Process, seconds: float) -> _Use:
    family = family_of(triggerer)
    return _Use(
        cpu=seconds * 60 / POLL_INTERVAL,
        memory=sum(process.memory_full_info().pss for process in family) / 2**20,
        connections=connections_to(benched.database, family),
    )


def _cpu(triggerer: Process) -> float:
    return sum(map(cpu, family_of(triggerer)))


def family_of(process: Process) -> list[psutil.Process]:
    """Return a process of Airflow with all that it has started."""
    first = psutil.Process(process.pid)
    return [first, *first.children(recursive=True)]


def connections_to(database: PostgresServer, processes: list[psutil.Process]) -> int:
    """Count the connections that they hold; a process that has ended meanwhile holds none."""
    held = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            peers = (connection.raddr for connection in process.net_connections("tcp"))
            held += sum(bool(peer) and peer.port == database.port for peer in peers)
    return held
