"""
Rows of the fault tables: each causes a fault, and declares its outcome.

A row is a function that causes the fault. The declared outcome is checked in each mode of the row, and written
into ``tests/faults/cases/``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from airflow_provider_crew.local import Scenario
from tests.airflow_runs import scenario
from tests.faults.harm import Harm
from tests.faults.scenes import Scene
from tests.supported import AIRFLOW

Way = Literal["deferred", "sync", "kickoff", "sensor deferred", "sensor poke", "sensor reschedule"]

RUN: tuple[Way, ...] = ("deferred", "sync")
SENSOR: tuple[Way, ...] = ("sensor deferred", "sensor poke", "sensor reschedule")

Xcom = Literal["the result", "the kickoff ID", "only the kickoff ID", "nothing"]
Crew = Literal["completed", "running", "revoked"]

ANY = "*"

# Long enough for every fault. A row completes it itself.
LONG = scenario(1, seconds=3600, inputs=("topic",))


@dataclass(frozen=True)
class Ends:
    """Expected outcome of a row."""

    state: str
    xcom: Xcom
    crew: Crew
    kickoffs: int = 1
    tries: int = 1


COMPLETED = Ends("success", "the result", "completed")
COMPLETED_IN_ATTEMPT_2 = Ends("success", "the result", "completed", tries=2)
UNCERTAIN = Ends("failed", "nothing", "running", tries=2)
# Also if a clear has deleted the kickoff record.
PAID_AGAIN = Ends("success", "the result", "completed", kickoffs=2, tries=2)
# XCom of other modes, if CrewRunOperator leaves the one in the key.
_XCOMS: dict[tuple[str, Xcom], Xcom] = {
    ("kickoff", "the result"): "the kickoff ID",
    ("sensor", "only the kickoff ID"): "nothing",
}


def _in_way(ends: Ends, way: Way) -> Ends:
    """Return the same outcome with the XCom of the mode."""
    return replace(ends, xcom=_XCOMS.get((way.split()[0], ends.xcom), ends.xcom))


@dataclass(frozen=True)
class Row:
    """One row in one mode."""

    name: str
    title: str
    section: str
    way: Way
    ends: Ends
    play: Callable[[Scene], None]
    harm: Harm | None = None
    """
    Fault of Airflow itself, caused once for all rows that name it, while they are in ``scene.harmed()``.

    No other row runs meanwhile.
    """
    executor: str | None = None
    """The only executor that the row runs with."""
    mapped: int = 0
    """Number of inputs over which the task is mapped."""
    batch: int = 0
    """Number of rows, if the task is a batch."""
    uncertain: int = 0
    """Rows of the batch that end as uncertain."""
    cost: str = ""
    """Cost that the last failure states. A killed process states none, and ``ANY`` depends on timing."""
    why: str = ""
    """Reason why there is no better outcome, with Airflow's issue if there is one."""
    scenario: Scenario = LONG
    forgotten: Ends | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dag_id(self) -> str:
        return re.sub(r"\W+", "_", f"{self.name}_{self.way}")


ROWS: list[Row] = []
DECLARED = {"cost", "harm", "executor", "mapped", "batch", "uncertain", "why", "scenario"}
_IN_STORE = pytest.mark.skipif(AIRFLOW < (3, 3), reason="This Airflow keeps no kickoff record.")


def row(
    ends: Ends,
    *,
    ways: tuple[Way, ...] = ("deferred",),
    core: bool | tuple[Way, ...] = False,
    forgotten: tuple[Way, ...] = (),
    before_3_3: tuple[Way, ...] = (),
    **given: Any,
) -> Callable[[Callable[[Scene], None]], Callable[..., None]]:
    """
    Declare a function as a row, and its docstring as the title.

    ``ends`` is the outcome of a ``CrewRunOperator``; other modes leave less in XCom. ``core``: runs on each
    Airflow; the modes that it names, or all if True, run before every change lands. ``forgotten``: the modes in
    which the task starts another execution if clearing deletes the kickoff record. ``before_3_3``: modes that
    also run before Airflow 3.3. ``given``: fields of the row, and arguments of the task.
    """
    declared = {name: given.pop(name) for name in DECLARED & given.keys()}

    def declare(play: Callable[[Scene], None]) -> Callable[..., None]:
        rows = [
            Row(
                name=play.__name__.removeprefix("test_"),
                title=" ".join((play.__doc__ or "").split()).removesuffix("."),
                section=play.__module__,
                way=way,
                ends=_in_way(ends, way),
                play=play,
                forgotten=_in_way(PAID_AGAIN, way) if way in forgotten else None,
                options=given,
                **declared,
            )
            for way in ways
        ]
        ROWS.extend(rows)

        def marks(way: Way) -> list[pytest.MarkDecorator]:
            is_brief = core is True or (core and way in core)
            return [_IN_STORE] * (way not in before_3_3) + [pytest.mark.nightly] * (not is_brief)

        def test(row: Row, stage: Any) -> None:
            stage.play(row)

        test.__name__ = test.__qualname__ = play.__name__
        test.__module__ = play.__module__
        cases = [pytest.param(row, id=row.way.replace(" ", "_"), marks=marks(row.way)) for row in rows]
        marked = pytest.mark.parametrize("row", cases)(test)
        return marked if core is False else pytest.mark.core(marked)

    return declare
