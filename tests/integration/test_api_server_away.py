"""What becomes of a task while Airflow's own API server is away."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from airflow_provider_crew.operators.crew import CrewRunOperator
from tests.integration.tasks import INPUTS, SLOW, Task, api_error

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.fixture(autouse=True)
def impatient(timing):
    timing(store_outage=0.3)


def run(store, **options: Any) -> Task:
    return Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS, **options), store=store, retries=1)


@pytest.mark.parametrize("status", [None, 500, 503])
@pytest.mark.parametrize("call", range(4))
def test_store_call_is_repeated_during_outage(live_crew, store, call, status):
    calls = count()
    store.breaks_with = api_error(status)
    store.breaks_at = lambda _: next(calls) in (call, call + 1, call + 2)

    assert run(store, deferrable=False).run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1
    assert store.has_delivered


def test_unsaved_kickoff_id_is_saved_when_execution_ends(live_crew, store):
    store.breaks_with = api_error(None)
    store.breaks_at = lambda _: bool(live_crew.kickoffs)
    live_crew.scenario = SLOW
    task = run(store, deferrable=True)
    waiting = task.deferred()
    (taken,) = live_crew.kickoffs
    assert store.kickoff["kickoff_id"] is None

    store.breaks_at = lambda _: False
    event = {"kickoff_id": taken.kickoff_id, "deadline": 0.0, "result": '{"output": "Done.", "output_json": null}'}
    assert task.resume(waiting, event)["output"] == "Done."
    assert store.kickoff["kickoff_id"] == taken.kickoff_id
    assert store.has_delivered
