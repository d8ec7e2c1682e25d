"""What an error knows of the execution, and of its cost, when a task ends in an unusual way."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost, LostContact
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import CrewInput, Scenario
from airflow_provider_crew.operators.crew import CrewRunOperator
from tests.integration.operators import run
from tests.integration.tasks import CONNECTION, FAILING, INPUTS, QUICK, SLOW, Task, fired, poked, revived

pytest_plugins = ["tests.integration.task_fixtures"]

UNDEFINED = "{{ no_such_name.topic }}"


def ended(task: Task) -> Any:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - an AirflowTaskTimeout is none of Exception
        poked(task)
    return caught.value


def test_failed_task_that_airflow_ends_is_kicked_off_by_a_retry(live_crew, store):
    live_crew.scenario = FAILING
    operator = run(deferrable=False)

    def is_told_to_end(call: str) -> bool:
        if call != "get" and live_crew.calls.count("status"):
            store.breaks_at = lambda _: False
            operator.on_kill()
        return False

    store.breaks_at = is_told_to_end
    task = Task(lambda: operator, store=store, retries=1)
    assert ended(task).cost is Cost.ENDED
    live_crew.scenario = QUICK
    operator = run(deferrable=False)

    assert task.run()["kickoff_id"] == live_crew.kickoffs[1].kickoff_id


def test_error_of_the_inputs_is_raised_unchanged(live_crew, store):
    class Broken(CrewRunOperator):
        def kickoff_inputs(self, _: Any) -> Any:
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        Task(lambda: Broken(task_id="crew", inputs=INPUTS), store=store).run()

    assert not live_crew.kickoffs


def test_triggerer_without_the_connection_is_reported(live_crew, store, monkeypatch):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True, max_outage=0.2), store=store, retries=1)
    waiting = task.deferred()
    connection = os.environ[CONNECTION]
    monkeypatch.delenv(CONNECTION)
    event = asyncio.run(fired(revived(waiting.trigger)))
    monkeypatch.setenv(CONNECTION, connection)

    with pytest.raises(LostContact) as caught:
        task.resume(waiting, event)

    assert caught.value.lacks_connection


def test_cleared_task_without_a_store_knows_no_earlier_attempt(live_crew):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.3, durable=False))
    with pytest.raises(CrewTaskFailed):
        task.run()
    live_crew.scenario = Scenario(inputs=(CrewInput(name="something_else"),))
    task.clear()

    with pytest.raises(CrewTaskFailed) as caught:
        task.run()

    assert caught.value.cost is Cost.UNKNOWN
    assert len(live_crew.kickoffs) == 1
