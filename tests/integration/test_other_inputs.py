"""Inputs that change between attempts, or between items of one attempt: each kind of operator compares its own."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost, WaitedTooLong
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed, OtherInputs
from tests.integration.operators import id_of, kickoff, run
from tests.integration.tasks import QUICK, SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]

FERRIES, HARBOURS = {"topic": "ferries", "audience": "sailors"}, {"topic": "harbours", "audience": "sailors"}


def decorated(*, inputs: Any, timeout: float) -> Any:
    decorator: Any = crew_task(task_id="crew", poll_interval=0.02, timeout=timeout)
    return decorator(lambda: inputs)().operator


@pytest.fixture(params=["kickoff", "run", "decorated"])
def row(request: pytest.FixtureRequest, store: Any) -> Task:
    """A mapped task whose later attempts have other inputs than the first."""
    make: dict[str, Any] = {
        "kickoff": kickoff,
        "run": partial(run, timeout=0.1),
        "decorated": partial(decorated, timeout=0.1),
    }
    given = [FERRIES, HARBOURS, HARBOURS]
    return Task(lambda: make[request.param](inputs=given.pop(0)), store=store, retries=1, map_index=3)


def test_another_row_fails_and_kicks_nothing_off(live_crew, store, row):
    live_crew.scenario = SLOW
    with suppress(WaitedTooLong):
        row.run()
    kept = store.kickoff
    for _ in range(2):
        row.clear()
        with pytest.raises(CrewTaskFailed) as caught:
            row.run()

        assert isinstance(caught.value.failure, OtherInputs)
        assert (caught.value.kickoff_id, caught.value.cost) == (live_crew.kickoffs[0].kickoff_id, Cost.RUNNING)
    assert len(live_crew.kickoffs) == 1
    assert store.kickoff == kept


def test_next_item_of_the_same_attempt_gets_its_own_result(live_crew, row):
    live_crew.scenario = QUICK
    earlier = id_of(row.run())
    row.ti.try_number -= 1

    assert id_of(row.run()) == live_crew.kickoffs[1].kickoff_id != earlier
    assert [taken.inputs for taken in live_crew.kickoffs] == [FERRIES, HARBOURS]
