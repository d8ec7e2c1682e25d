"""Tries kinds of bad input, in whatever number, and counts."""

from __future__ import annotations

import gc
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis

from airflow_provider_crew.client.settings import ServiceSettings
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import log_that_is_read, log_that_nobody_keeps
from tests.fuzz.bad_service import AnyService, both_clients
from tests.fuzz.bad_tasks import airflow_without_delays
from tests.fuzz.bad_values import TOKEN

LONGEST_COMPUTING = 5.0
# As long as a client waits for what does not come. Here all of an answer comes at once, and no case has to wait.
LONGEST_CASE = 60.0
_BATCH = 50
_PAGE = 4096
_SHOWN = 2000


class TookTooLong(Exception):
    """A case that would not come to an end."""


@dataclass
class Tally:
    """Numbers of cases by kind, and findings."""

    cases: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


@contextmanager
def world() -> Iterator[World]:
    """Start a service that answers anything, and open both clients and a connection to it."""
    with ExitStack() as stack:
        faults = stack.enter_context(log_that_is_read())
        service = stack.enter_context(AnyService())
        stack.enter_context(airflow_without_delays())
        connection = f"crew://:{TOKEN}@127.0.0.1:{service.port}/http"
        stack.enter_context(patch.dict("os.environ", AIRFLOW_CONN_CREW_DEFAULT=connection))
        settings = ServiceSettings(
            address=service.url, token=TOKEN, request_timeout=LONGEST_CASE, status_path="status_first"
        )
        yield World(service, stack.enter_context(both_clients(settings)), faults)


@contextmanager
def _cut_short() -> Iterator[None]:
    """Let no case compute for ever. Not by SIGALRM, which is for pytest's own time-out."""

    def ring(*_: object) -> None:
        raise TookTooLong(f"more than {LONGEST_COMPUTING} s of computing")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_COMPUTING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def check(kind: Kind, place: World, case: Any, tally: Tally) -> None:
    """Try one case."""
    began = time.perf_counter()
    with _cut_short():
        kind.check(place, case)
    took = time.perf_counter() - began
    tally.cases[kind.name] += 1
    assert took < LONGEST_CASE
    assert not place.log_faults, place.log_faults.pop()


def examine(kind: Kind, place: World, tally: Tally, *, examples: int, seed: int | None = None) -> None:
    """Try so many cases of a kind: always the same without a seed."""

    @hypothesis.settings(
        max_examples=examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(kind.cases)
    def each(case: Any) -> None:
        try:
            check(kind, place, case, tally)
        except Exception as error:
            error.add_note(ascii(case)[:_SHOWN])
            raise

    with log_that_nobody_keeps():
        (each if seed is None else hypothesis.seed(seed)(each))()


def resident_mb() -> float:
    """Return how much memory this process holds, after everything that can be let go is let go."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1024 / 1024


def long_run(kinds: tuple[Kind, ...], place: World, tally: Tally, *, cases: int, seeds: Iterator[int]) -> None:
    """Try so many more cases, of all kinds by turns. A finding is kept, and the run goes on."""
    until = tally.cases.total() + cases
    while tally.cases.total() < until:
        # Many short turns, since Hypothesis remembers every case of a turn.
        for kind, seed in zip(kinds, seeds, strict=False):
            try:
                examine(kind, place, tally, examples=kind.weight * _BATCH, seed=seed)
            except Exception as error:  # noqa: BLE001 - told at the end
                tally.findings.append(_finding(kind, seed, error))
                place.log_faults.clear()


def _finding(kind: Kind, seed: int, error: Exception) -> str:
    notes = "\n".join(getattr(error, "__notes__", []))
    last = "".join(traceback.format_tb(error.__traceback__)[-3:])
    return f"{kind.name} (seed {seed}): {type(error).__name__}: {str(error)[:500]}\n{notes[:_SHOWN]}\n{last}"


def table(tally: Tally, *, seed: int, before: float, after: float) -> str:
    """Return the number of cases by kind, the growth of the process and the findings."""
    rows = [f"{name:<40}{count:>9,}" for name, count in tally.cases.items()]
    return "\n".join(
        ["", *rows, f"seed {seed}; resident memory {before:.0f} to {after:.0f} MB; findings:", *tally.findings]
    )
