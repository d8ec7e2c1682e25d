"""Objects that a deferred task keeps in the triggerer, all of which the garbage collector visits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from typing import Any

from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.integration.tasks import SLOW, fired

pytest_plugins = ["tests.integration.task_fixtures"]

_FEW, _MANY = 10, 30
_KEPT = {"CrewExecutionTrigger", "Poller", "Polls", "ProgressReport", "Watch", "WatchMemory", "WatchRules"}


def objects() -> Counter[str]:
    """Count objects of this package, and of the loggers of its hooks; the crew is in this process, too."""
    gc.collect()
    kinds = ((str(type(each).__module__), type(each).__qualname__) for each in gc.get_objects())
    ours = ("airflow_provider_crew.", "structlog.", "airflow.sdk._shared.logging.")
    return Counter(name for module, name in kinds if module.startswith(ours) and ".local" not in module)


async def test_trigger_keeps_only_the_objects_of_its_own_state(live_crew, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.client.watch._LONGEST_SPREAD", 0.0)
    live_crew.scenario = SLOW
    rules = {"poll_interval": 600.0, "deadline": time.time() + 6000}
    tasks: list[asyncio.Task[Any]] = []
    counts = []
    for number in (_FEW, _MANY):
        while len(tasks) < number:
            trigger = CrewExecutionTrigger(live_crew.take({}, None, {}), "crew_default", rules=rules)
            tasks.append(asyncio.create_task(fired(trigger)))
        while len(live_crew.requests) < number:  # noqa: ASYNC110 - the crew has no event to wait for
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # until the last has read its answer
        counts.append(objects())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert counts[1] - counts[0] == dict.fromkeys(_KEPT, _MANY - _FEW)
