"""
What a poll costs: each contestant's polling loop alone, in a process of its own.

``python -m benchmarks.polls ours http 100`` measures one contestant once; ``--profile FILE`` says where time goes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import stub
from benchmarks.pollers import CONTESTANTS, NAMES, connections
from benchmarks.polling import Measured, Plan
from benchmarks.report import Figure, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMES = {"http": "over http", "https": "over TLS"}
_DURATION = 6.0
_BEHIND = 0.95
_PATIENCE = 120.0
_NO_END = "did not come to an end"

_METHOD = """\
Each contestant runs alone in a process, as triggers run in a triggerer (with greenback, and with logs that are \
rendered and discarded). A stub in another process answers at once that the execution is running, in the \
shortest form that the contestant can read. Every tenth poll of an execution reports other progress, if the API \
has any. Connections are in the environment. Over TLS, all check the stub's certificate against its own \
authority. The dbt Cloud hook supports only https, so its addresses are rewritten for http.

All poll at the same interval, with evenly spread starts. _CPU_ is the user and system time of the process in \
the steady state, divided by the polls that the stub received. Nothing is subtracted. Stalls and turns were \
measured before that, because measuring them takes time. _Connections_ and _for polls_ count all connections and \
polls of a round. _Memory_ is the peak growth over the same process after it has watched one execution. A stall \
is the longest turn of the event loop, between two checks for events. _Longest of its own_ is the most CPU time \
that the loop itself used in a turn, without Python's garbage collector. The collector sometimes visits all \
objects of the process, which takes longer with more executions.

"""
_BACK_TO_BACK = "so the loop hardly ever sleeps"
_KEPT_UP = "so {rate:.0f} polls are due every second"
_JITTER = """ \
Without jitter, polls that coincide once always coincide, and one turn of the event loop serves several. Jitter \
like ours spreads them, which is easier on the service and takes more turns. So the bare loop is also measured \
with jitter."""
# Measured only where they tell something: what jitter costs, and what the library that Airflow has costs.
_JITTERED = "aiohttp_spread"
_HTTPX = "httpx"
_COLUMNS = (
    "contestant",
    "CPU per poll",
    "relative to the bare loop",
    "turns of the event loop per poll",
    "connections",
    "for polls",
    "memory per execution",
    "longest stall",
    "longest of its own",
    "remarks",
)

# What was measured, or the last line of what failed.
Outcome = Measured | str


class ContestantFailed(Exception):
    """A contestant did not come to an end."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many executions to poll, and at which interval."""

    executions: int
    interval: float
    back_to_back: bool = False
    with_lateness: bool = False
    besides: tuple[str, ...] = ()

    @property
    def contestants(self) -> list[str]:
        """Which contestants are measured."""
        return [name for name in CONTESTANTS if name not in {_JITTERED, _HTTPX} or name in self.besides]

    @property
    def rate(self) -> float:
        """Polls that are due in a second."""
        return self.executions / self.interval

    @property
    def duration(self) -> float:
        """How long to measure: every execution is polled at least once."""
        return max(self.interval, _DURATION)


_FEWEST = 100
_LOADS = (
    # What the code costs: the event loop always finds something to do, and hardly ever has to be woken.
    Load(_FEWEST, 0.01, back_to_back=True, besides=(_HTTPX,)),
    # What it costs in a triggerer. All are polled at the same rate, which no contestant is too slow for.
    Load(_FEWEST, 0.3, besides=(_JITTERED,)),
    Load(1_000, 3.0),
)


def measure(rounds: int) -> list[Table]:
    """Measure all contestants, one after the other in each round, so that drift hits all alike."""
    tables: list[Table] = []
    for load in _LOADS:
        # A hundred executions are soon done.
        outcomes = outcomes_of(load, 2 * rounds if load.executions == _FEWEST else rounds)
        tables += [
            table_of(scheme, load, outcomes[scheme], method=load is _LOADS[0] and scheme == next(iter(SCHEMES)))
            for scheme in SCHEMES
        ]
    return tables


def run(contestant: str, scheme: str, load: Load, profile: str = "") -> Measured:
    """Measure one contestant once, against a stub of its own."""
    with tempfile.TemporaryDirectory() as folder, stub.running(scheme, Path(folder)) as service:
        plan = Plan(
            contestant=contestant,
            executions=load.executions,
            interval=load.interval,
            duration=load.duration,
            stub=asdict(service),
            lateness=contestant == "ours" and load.with_lateness,
            profile=profile,
        )
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.polling", json.dumps(asdict(plan))],
            env=environment(service, Path(folder)),
            capture_output=True,
            text=True,
            check=False,
            timeout=4 * (plan.interval + plan.duration) + _PATIENCE,
        )
    if done.returncode:
        raise ContestantFailed(done.stderr)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def environment(service: stub.Stub, home: Path) -> dict[str, str]:
    """Return the environment of a contestant's process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    return inherited | connections(service) | {"AIRFLOW_HOME": str(home), "no_proxy": stub.HOST}


def outcomes_of(load: Load, rounds: int) -> dict[str, dict[str, list[Outcome]]]:
    """Measure all contestants in turn; one that has not come to an end once is not measured again."""
    outcomes: dict[str, dict[str, list[Outcome]]] = {
        scheme: {contestant: [] for contestant in load.contestants} for scheme in SCHEMES
    }
    for _ in range(rounds):
        for scheme, contestant in itertools.product(SCHEMES, load.contestants):
            before = outcomes[scheme][contestant]
            outcome = _NO_END if _NO_END in before else _outcome(contestant, scheme, load)
            before.append(outcome)
            cost = f"{_cost(outcome):.0f} µs" if isinstance(outcome, Measured) else outcome
            print(
                f"polls: {contestant} {scheme} {load.executions} every {load.interval:g} s: {cost}",
                file=sys.stderr,
            )
    return outcomes


def _outcome(contestant: str, scheme: str, load: Load) -> Outcome:
    try:
        return run(contestant, scheme, load)
    except ContestantFailed as failure:
        return str(failure).strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired:
        return _NO_END


def table_of(scheme: str, load: Load, outcomes: Mapping[str, Sequence[Outcome]], *, method: bool = False) -> Table:
    """Lay out what was measured over http or TLS, and how, unless a table before says it."""
    how = "back to back" if load.back_to_back else f"every {load.interval:g} s"
    said = _METHOD if method else ""
    jitter = _JITTER if _JITTERED in load.besides else ""
    due = _BACK_TO_BACK if load.back_to_back else _KEPT_UP.format(rate=load.rate)
    return Table(
        title=f"{load.executions:,} executions, {how}, {SCHEMES[scheme]}",
        text=f"{said}All poll every {load.interval:g} s, {due}. Measured for {load.duration:g} s.{jitter}",
        columns=_COLUMNS,
        rows=[_row(contestant, outcomes, load) for contestant in load.contestants],
    )


def _row(contestant: str, outcomes: Mapping[str, Sequence[Outcome]], load: Load) -> list[object]:
    measured = measured_of(outcomes[contestant])
    if not measured:
        return [NAMES[contestant], *["-"] * (len(_COLUMNS) - 2), outcomes[contestant][0]]
    return [
        NAMES[contestant],
        Figure.of(map(_cost, measured), "µs"),
        _ratio(outcomes[contestant], outcomes["aiohttp"]),
        Figure.of(each.turns for each in measured),
        Figure.of(each.connections for each in measured),
        Figure.of(each.polls_in_all for each in measured),
        Figure.of((each.memory / 1024 for each in measured), "KB"),
        Figure.of((each.stall * 1000 for each in measured), "ms"),
        Figure.of((each.own_stall * 1000 for each in measured), "ms"),
        _remarks(outcomes[contestant], load),
    ]


def _ratio(outcomes: Sequence[Outcome], bare: Sequence[Outcome]) -> Figure | str:
    """Compare within each round: whatever the machine does then hits both."""
    ratios = [
        _cost(own) / _cost(other)
        for own, other in zip(outcomes, bare, strict=True)
        if isinstance(own, Measured) and isinstance(other, Measured)
    ]
    return Figure.of(ratios) if ratios else "-"


def _remarks(outcomes: Sequence[Outcome], load: Load) -> str:
    """Say what a contestant left undone, because that flatters its other figures."""
    measured = measured_of(outcomes)
    remarks = list(dict.fromkeys(outcome for outcome in outcomes if isinstance(outcome, str)))
    done = statistics.median(each.polls for each in measured) / (load.rate * load.duration)
    if done < _BEHIND and not load.back_to_back:
        remarks.append(f"sent {done:.0%} of the polls that were due")
    remarks += [f"{len(each.ended)} ended by themselves: {each.ended[0]}" for each in measured if each.ended]
    return "; ".join(remarks)


def measured_of(outcomes: Sequence[Outcome]) -> list[Measured]:
    """Leave out what failed."""
    return [outcome for outcome in outcomes if isinstance(outcome, Measured)]


def _cost(measured: Measured) -> float:
    return measured.cpu / max(measured.polls, 1) * 1e6


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.polls", description=__doc__)
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("scheme", choices=SCHEMES)
    parser.add_argument("executions", type=int)
    parser.add_argument("--interval", type=float, default=0.3, help="in seconds; 0.01 means back to back")
    parser.add_argument("--profile", default="", help="write a profile of the steady state, for pstats")
    arguments = parser.parse_args()
    load = Load(arguments.executions, arguments.interval)
    measured = run(arguments.contestant, arguments.scheme, load, arguments.profile)
    print(f"{_cost(measured):.0f} µs CPU and {measured.turns:.1f} turns of the event loop per poll,")
    print(f"{measured.polls} polls, {measured.connections} connections,")
    print(f"{measured.memory / 1024:.0f} KB per execution, longest stall {measured.stall * 1000:.0f} ms,")
    print(f"longest turn of its own {measured.own_stall * 1000:.0f} ms")
    for end in measured.ended[:3]:
        print(f"One ended by itself: {end}")
    if arguments.profile:
        pstats.Stats(arguments.profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    _main()
