"""
The rows of the table "What happens when …": what is done to a task, and what is to come of it.

A row is a function that does the harm, and a declaration of the end, which is checked after every one of its ways
and from which the table in the documentation is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import pytest

from airflow_provider_crew.local import Scenario
from tests.faults.harm import Harm
from tests.faults.scenes import Scene
from tests.supported import AIRFLOW

Way = Literal["deferred", "sync", "kickoff", "sensor deferred", "sensor poke", "sensor reschedule"]

RUN: tuple[Way, ...] = ("deferred", "sync")
SENSOR: tuple[Way, ...] = ("sensor deferred", "sensor poke", "sensor reschedule")

Xcom = Literal["the result", "the kickoff id", "the kickoff id only", "nothing"]
Crew = Literal["has completed", "has failed", "goes on", "was never started", "is forgotten", "was revoked"]

# Long enough for anything to happen meanwhile, for those that have to be finished by hand.
LONG = Scenario.model_validate(
    {
        "inputs": [{"name": "topic"}],
        "tasks": [
            {"name": "research_task", "agent": "Researcher", "seconds": 1, "output": "Notes on {topic}"},
            {"name": "writing_task", "agent": "Writer", "seconds": 3600, "output": "Briefing: {topic}"},
        ],
    }
)


@dataclass(frozen=True)
class Ends:
    """What is to come of a row. The rest of its facts is in ``outcomes.txt``."""

    state: str
    xcom: Xcom
    crew: Crew
    kickoffs: int = 1
    tries: int = 1

    @property
    def possible_tries(self) -> tuple[int, ...]:
        """After how many tries it may be over. Airflow 2 counts none for a Clear of a task that runs."""
        return tuple(range(1, self.tries + 1)) if AIRFLOW < (3,) else (self.tries,)


COMPLETED = Ends("success", "the result", "has completed")
COMPLETED_IN_ATTEMPT_2 = Ends("success", "the result", "has completed", tries=2)
# What other ways leave in XCom where CrewRunOperator leaves that.
_XCOMS: dict[tuple[str, Xcom], Xcom] = {
    ("kickoff", "the result"): "the kickoff id",
    ("sensor", "the kickoff id only"): "nothing",
}


def paid_again(*, tries: int = 2) -> Ends:
    """Return the end of a task whose kickoff record a clear has deleted: it starts another execution."""
    return Ends("success", "the result", "has completed", kickoffs=2, tries=tries)


def _in_way(ends: Ends, way: Way) -> Ends:
    """Return the same end with the XCom of the way."""
    return replace(ends, xcom=_XCOMS.get((way.split()[0], ends.xcom), ends.xcom))


@dataclass(frozen=True)
class Row:
    """One row, in one way of running a crew."""

    name: str
    title: str
    section: str
    way: Way
    ends: Ends
    play: Callable[[Scene], None]
    alone: bool = False
    """Whether it harms Airflow itself, so that no other row may be under way."""
    harm: Harm | None = None
    """Harm to Airflow itself, done once for all rows that name it, while they are in ``scene.harmed()``."""
    executor: str | None = None
    """The only executor with which it can be played."""
    mapped: int = 0
    """Number of inputs over which the task is mapped."""
    why: str = ""
    """The reason that makes a better end impossible, with Airflow's own issue where it is Airflow."""
    scenario: Scenario = LONG
    forgotten: Ends | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dag_id(self) -> str:
        return re.sub(r"\W+", "_", f"{self.name}_{self.way}")

    @property
    def harms_airflow(self) -> bool:
        """Whether rows that do no harm to Airflow have to be over by then."""
        return self.alone or self.harm is not None


ROWS: list[Row] = []
DECLARED = {"alone", "harm", "executor", "mapped", "why", "scenario"}
_IN_STORE = pytest.mark.skipif(AIRFLOW < (3, 3), reason="a variable does less: docs/retries.md")


def row(
    title: str,
    ends: Ends | Mapping[Any, Ends],
    *,
    ways: tuple[Way, ...] = ("deferred",),
    core: bool = False,
    forgotten: Mapping[Way, Ends] = MappingProxyType({}),
    needs_store: tuple[Way, ...] = (),
    **given: Any,
) -> Callable[[Callable[[Scene], None]], Callable[..., None]]:
    """
    Make a row of a function.

    ``ends`` is the end of a ``CrewRunOperator``; the other ways leave less in XCom. ``core``: it runs before every
    change lands. ``forgotten``: its end where clearing deletes the kickoff record, if that differs.
    ``needs_store``: the ways that end otherwise where a task keeps its record in a variable. ``given``: fields of
    the row, and arguments of the task.
    """
    declared = {name: given.pop(name) for name in DECLARED & given.keys()}

    def declare(play: Callable[[Scene], None]) -> Callable[..., None]:
        rows = [
            Row(
                name=play.__name__.removeprefix("test_"),
                title=title,
                section=play.__module__,
                way=way,
                ends=_in_way(ends if isinstance(ends, Ends) else ends[way], way),
                play=play,
                forgotten=_in_way(forgotten[way], way) if way in forgotten else None,
                options=given,
                **declared,
            )
            for way in ways
        ]
        ROWS.extend(rows)

        def test(row: Row, stage: Any) -> None:
            stage.play(row)

        test.__name__ = test.__qualname__ = play.__name__
        test.__module__ = play.__module__
        cases = [
            pytest.param(row, id=row.way.replace(" ", "_"), marks=[_IN_STORE] * (row.way in needs_store))
            for row in rows
        ]
        marked = pytest.mark.parametrize("row", cases)(test)
        return pytest.mark.core(marked) if core else marked

    return declare
