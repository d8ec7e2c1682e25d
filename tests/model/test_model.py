"""
Walk every state of a task of each kind, and compare the broken promises with those that are known.

A sensor starts nothing, and waits and stops by the rules of a run. A crew as a tool is an Attempt with a record
for each call, and needs another environment: ``tests/agents`` kills its process as it sends and as it waits.

CONTRIBUTING.md explains how to read a story. ``CREW_MODEL_SURPRISES=1`` walks further, which takes minutes.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Container, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from tests.model.moves import steps
from tests.model.process import TASKS, Task, Wrong, played
from tests.model.promises import at_rest
from tests.model.world import World

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"
MORE = int(os.environ.get("CREW_MODEL_SURPRISES", "0"))


def made(operator: Any, **options: Any) -> Callable[[], Any]:
    return cache(lambda: operator(task_id="crew", retries=1, **{"inputs": {}, **options}))


kickoff = partial(made, CrewKickoffOperator)
DEFERRED = partial(made, CrewRunOperator, deferrable=True)
ANSWERED = partial(DEFERRED, answer_in_airflow=True)
APPROVED = ANSWERED(response_timeout=600, on_response_timeout="approve")
ROW: dict[str, Any] = {"inputs": [{"topic": "harbours"}], "result_path": "memory://results", "max_failed": 0}
BATCH = partial(made, CrewBatchOperator, deferrable=True, **ROW)
# To resume the last attempt as well takes four times as long.
OF_BATCH: dict[str, Any] = {"attempts": 2, "resumes_last": MORE > 0, "has_record": False}
TASKS |= {
    "kickoff": Task(kickoff(cancel_on_kill=True), surprises=2),
    "kickoff, and a process taken for dead": Task(kickoff(), has_ghosts=True),
    "kickoff that settles itself": Task(kickoff(), settles=True, surprises=2),
    "kickoff, durable=False": Task(kickoff(durable=False)),
    "kickoff on 3.4": Task(kickoff(), airflow=(3, 4), surprises=2),
    "kickoff on 3.4 without its kept state": Task(kickoff(), airflow=(3, 4), discards=True),
    "run in a worker": Task(made(CrewRunOperator, deferrable=False, cancel_on_kill=True), attempts=2),
    "row of a deferred batch": Task(BATCH(cancel_on_kill=True), **OF_BATCH),
    "row that settles itself": Task(BATCH(), settles=True, **OF_BATCH),
    "deferred run": Task(DEFERRED(cancel_on_kill=True)),
    "answered run": Task(ANSWERED(), attempts=2, questions=2),
    "run that answers itself": Task(APPROVED, attempts=2, questions=1),
}
RECORDED = tuple(kind for kind, each in TASKS.items() if each.has_record and not each.questions)
TWO_SURPRISES = tuple(kind for kind in RECORDED if TASKS[kind].surprises + MORE > 1)
ANOTHER = "Another execution is started although"


class Known(NamedTuple):
    """A broken promise that stays: why, and the line of ``docs/retries.md`` that tells users."""

    promise: str
    kinds: tuple[str, ...]
    reason: str
    line: str


KNOWN = [
    Known(
        f"{ANOTHER} a result was returned after the user had read 'does what it no longer does'.",
        RECORDED,
        "Airflow clears the task as it is when the request arrives, not as the user saw it.",
        "a task that succeeds or reports an uncertain kickoff just before you clear it starts another execution.",
    ),
    Known(
        f"{ANOTHER} one is running after the user had read 'does what it no longer does'.",
        TWO_SURPRISES,
        "The same, for a task that has meanwhile reported the uncertain kickoff.",
        "a task that succeeds or reports an uncertain kickoff just before you clear it starts another execution.",
    ),
    *(
        Known(
            f"The attempt ends as UncertainKickoff although the user had read '{read} execution (billed)'.",
            kinds,
            "Nothing was sent. Deleting the intent could delete that of an attempt that has begun meanwhile.",
            "the next attempt may still report an uncertain kickoff.",
        )
        for read, kinds in (("starts an", RECORDED), ("starts another", TWO_SURPRISES))
    ),
    *(
        Known(
            f"{ANOTHER} one is running{read}.",
            ("kickoff, durable=False",),
            "The DAG author has chosen it.",
            "the next attempt starts another execution, although one may be running.",
        )
        for read in ("", " after the user had read 'does what it no longer does'")
    ),
    *(
        Known(
            f"{ANOTHER} {state} after the user had read 'discards the task state'.",
            ("kickoff on 3.4 without its kept state",),
            "Airflow 3.4 deletes the record.",
            "deletes the kickoff record, and the cleared task starts another execution.",
        )
        for state in ("one is running", "a result was returned")
    ),
]


@pytest.fixture(scope="module", autouse=True)
def _without_collections() -> Iterator[None]:
    """Collect no garbage: it takes as long as a sixth of the walks, and visits all objects of Airflow again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


Before = dict[World, tuple[World, str] | None]


def walked(kind: str, known: Container[str]) -> dict[str, str]:
    """Return the shortest story of each broken promise, up to the first that is not known."""
    before: Before = {World(kind, TASKS[kind].surprises + MORE): None}
    left, stories = deque(before), dict[str, str]()
    with played(TASKS[kind]):
        while left:
            world = left.popleft()
            wrong = at_rest(world)
            for sentence, then in [("", wrong)] if wrong else steps(world):
                if isinstance(then, Wrong):
                    stories.setdefault(then, story_of(world, sentence, before))
                    if then not in known:
                        return stories
                elif then not in before:
                    before[then] = world, sentence
                    left.append(then)
    return stories


def story_of(world: World, last: str, before: Before) -> str:
    """Return what has happened until a promise was broken."""
    lines = [last]
    while step := before[world]:
        world, line = step
        lines.append(line)
    return "\n".join(f"{number:4}. {line}" for number, line in enumerate(filter(None, reversed(lines)), 1))


@pytest.mark.parametrize("kind", TASKS)
def test_only_known_promises_are_broken(kind: str) -> None:
    known = {each.promise for each in KNOWN if kind in each.kinds}
    stories = walked(kind, known)

    new = "\n\n".join(f"{kind}: {wrong}\n{story}" for wrong, story in stories.items() if wrong not in known)
    assert not new, new
    assert MORE or known <= stories.keys()


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.promise)
def test_documentation_tells_of_a_known_one(known: Known) -> None:
    assert known.line in " ".join(PAGE.read_text().split())
