"""A batch whose processes die at random, with a crew that fails at random: nothing is started twice, or lost."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from airflow_provider_crew.batch import batch as story
from airflow_provider_crew.batch import collect, recall, start
from airflow_provider_crew.batch.files import ResultFiles
from tests.integration.batches import Killed, faults_of, lines
from tests.integration.operators import both_ways
from tests.integration.tasks import FAILING, QUICK, Task, TaskStateStore, WatchedService
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")

ROWS = 60
HARMS = 12
SEEDS = range(2)
# Calls at which a process may die, before or after them.
PLACES = (
    (TaskStateStore, ("get", "set", "delete")),
    (ResultFiles, ("claim", "write", "append", "delete", "compact")),
    (story, ("collect",)),
    (collect, ("end_row", "store_ends", "delete_groups")),
    (recall, ("save_groups", "store_ends")),
    (start, ("end_row", "save_intents", "save_kickoff_ids", "store_ends")),
)


class Harm:
    """Kills a process at a random call, and lets the crew fail. Counts what the result files report."""

    def __init__(self, crew: WatchedService, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crew = crew
        self.dice = random.Random(seed)  # noqa: S311 - for tests
        self.reports: dict[str, set[int]] = defaultdict(set)
        """Attempts of each row that a file reports as uncertain."""
        self.done: Counter[str] = Counter()
        self._dies_in = math.inf
        monkeypatch.setattr(ResultFiles, "write", self._reporting(ResultFiles.write))
        for owner, names in PLACES:
            for name in names:
                monkeypatch.setattr(owner, name, self._deadly(getattr(owner, name), name))

    def _deadly(self, original: Any, name: str) -> Any:
        def method(*given: Any, **named: Any) -> Any:
            self._count(f"killed before {name}")
            result = original(*given, **named)
            self._count(f"killed after {name}")
            return result

        return method

    def _count(self, where: str) -> None:
        self._dies_in -= 1
        if self._dies_in <= 0:
            if self._dies_in == 0:
                self.done[where] += 1
            raise Killed  # in all threads

    def _reporting(self, original: Any) -> Any:
        def write(files: ResultFiles, name: str, given: Iterable[Any]) -> None:
            lines = list(given)
            original(files, name, lines)
            for line in lines if name.startswith("parts/") else ():
                if line["status"] == "uncertain":
                    self.reports[line["key"]].add(line["attempts"])

        return write

    def before_attempt(self, task: Task, store: TaskStateStore) -> None:
        dice, faults = self.dice, self.crew.faults
        self._dies_in = dice.choice([dice.randint(1, 60), dice.randint(1, 600)])
        self.crew.scenario = dice.choice([QUICK, QUICK, FAILING])
        for name, harm in {
            "kickoffs lost": lambda: faults.reset(after_taken=True, on="kickoff", times=dice.randint(1, 3)),
            "kickoffs refused": lambda: faults.answer(429, on="kickoff", times=dice.randint(1, 9)),
            "polls fail": lambda: faults.answer(503, on="status", times=dice.randint(1, 9)),
            "polls cut off": lambda: faults.truncate(on="status", times=dice.randint(1, 3)),
        }.items():
            if dice.random() < 0.2:
                harm()
                self.done[name] += 1
        if dice.random() < 0.3:
            task.clear()
            self.done["cleared"] += 1
            if dice.random() < 0.5:
                for key in store.entries:
                    store.delete(key)
                self.done["forgotten"] += 1

    def peace(self) -> None:
        self._dies_in = math.inf
        self.crew.faults.clear()
        self.crew.scenario = QUICK


@pytest.mark.parametrize("seed", SEEDS)
@both_ways
def test_random_harm_starts_no_row_twice(live_crew, batch, store, out, monkeypatch, seed, deferrable):
    task = batch(ROWS, max_active=min(50, ROWS // 4), max_failed=None, deferrable=deferrable)
    harm = Harm(live_crew, seed, monkeypatch)
    for _ in range(HARMS):
        harm.before_attempt(task, store)
        with suppress(Killed, Exception):  # after an error, Airflow retries
            task.run()
    harm.peace()
    task.run()
    reports = {key: len(attempts) for key, attempts in harm.reports.items()}
    assert not faults_of(lines(out), live_crew.kickoffs, reports, ROWS)
