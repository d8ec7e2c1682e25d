"""What a poll costs in a crowd of ten thousand executions, ten times what a triggerer takes by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.pollers import NAMES
from benchmarks.polls import SCHEMES, Load, measured_of, outcomes_of, table_of
from benchmarks.report import Figure, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.polling import Measured
    from benchmarks.polls import Outcome

_LOAD = Load(10_000, 30.0, with_lateness=True)


def measure(rounds: int) -> list[Table]:
    """Measure all contestants as polls does: ten thousand polls, and a minute until the steady state."""
    outcomes = outcomes_of(_LOAD, min(rounds, 2))
    tables = [table_of(scheme, _LOAD, outcomes[scheme]) for scheme in SCHEMES]
    return [*tables, _lateness_table(outcomes)]


def _lateness_table(outcomes: Mapping[str, Mapping[str, Sequence[Outcome]]]) -> Table:
    return Table(
        title=f"How late the polls of {NAMES['ours']} are, at {_LOAD.executions:,} executions",
        text="From the time when a poll was due until its answer arrived, so the request itself is included. All "
        "polls except the first ones, in the rounds above.",
        columns=["", "polls", "median", "99th percentile", "worst", "longest stall", "of its own"],
        rows=[_lateness_row(scheme, measured_of(outcomes[scheme]["ours"])) for scheme in SCHEMES],
    )


def _lateness_row(scheme: str, measured: Sequence[Measured]) -> list[object]:
    if not measured:
        return [SCHEMES[scheme], *["-"] * 6]
    sorted_rounds = [sorted(each.lateness) for each in measured]
    shares = [
        Figure.of((late[min(int(share * len(late)), len(late) - 1)] * 1000 for late in sorted_rounds), "ms")
        for share in (0.5, 0.99, 1.0)
    ]
    stall = Figure.of((each.stall * 1000 for each in measured), "ms")
    own = Figure.of((each.own_stall * 1000 for each in measured), "ms")
    return [SCHEMES[scheme], Figure.of(map(len, sorted_rounds)), *shares, stall, own]
