"""Whatever comes in, from people, the service or another process: it is used, or refused in our words."""

from __future__ import annotations

import gc
import itertools
import os
import random
from collections.abc import Iterator

import pytest

from tests.fuzz import bad_answers, bad_connections, bad_ids, bad_inputs, bad_outputs, bad_records
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_run import Tally, check, examine, long_run, resident_mb, table, world

KINDS = tuple(
    kind
    for module in (bad_connections, bad_inputs, bad_ids, bad_answers, bad_outputs, bad_records)
    for kind in module.KINDS
)
EXAMPLES = 60
CASES = int(os.environ.get("CREW_FUZZ_CASES", "0"))
SEED = int(os.environ.get("CREW_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
# Over so many cases the process may grow by a tenth, and not more.
LAST = 50_000


@pytest.fixture(scope="module")
def place() -> Iterator[World]:
    # Close sockets that earlier tests left behind. In a deep recursion the garbage collector could not.
    gc.collect()
    with world() as place:
        yield place


@pytest.mark.timeout(300)  # so that a case in which both clients wait is told as such
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_bad_input(place: World, kind: Kind) -> None:
    tally = Tally()
    for case in kind.known:
        check(kind, place, case, tally)
    examine(kind, place, tally, examples=EXAMPLES)


@pytest.mark.skipif(not CASES, reason="a long run: CREW_FUZZ_CASES=100000, and CREW_FUZZ_SEED to repeat one")
@pytest.mark.timeout(0)
def test_much_bad_input(place: World, capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled():
        print(f"\nCREW_FUZZ_CASES={CASES} CREW_FUZZ_SEED={SEED}", flush=True)  # noqa: T201
    tally, seeds = Tally(), itertools.count(SEED)
    last = min(LAST, CASES // 2)

    long_run(KINDS, place, tally, cases=CASES - last, seeds=seeds)
    before = resident_mb()
    long_run(KINDS, place, tally, cases=last, seeds=seeds)
    after = resident_mb()

    with capfd.disabled():
        print(table(tally, seed=SEED, before=before, after=after))  # noqa: T201
    assert not tally.findings
    assert tally.cases.total() >= CASES
    assert after <= before * 1.1
