"""An ID left by an old process is found by the next attempt, or by the one after it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from airflow_provider_crew.client.errors import UncertainKickoff
from airflow_provider_crew.exceptions import CrewTaskFailed
from tests.integration.operators import kickoff
from tests.integration.tasks import CONNECTION, INPUTS, SLOW, Task, TaskStateStore
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

EARLIER = "airflow_provider_crew.durable.kickoff"
RUNNER = "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance"


def sent(store: TaskStateStore, service: Any) -> str:
    """Leave what a try leaves that was sent, and whose answer is not remembered."""
    store.set("crew_kickoff", {"max_tries": 0, "kicked_off_at": time.time()})
    service.scenario = SLOW
    return service.take(INPUTS, None, {})


def cleared(store: TaskStateStore) -> Task:
    task = Task(kickoff, store=store)
    task.ti.try_number = 1
    task.clear()
    return task


@pytest.mark.skipif(AIRFLOW < (3,), reason="a task cannot ask Airflow 2 for its state")
@pytest.mark.parametrize("state", ["restarting", "running", None])
def test_clear_before_the_report_does_not_count(live_crew, store, monkeypatch, state):
    live_crew.faults.answer(504, on="kickoff", after_taken=True)
    task = Task(kickoff, store=store)
    states = {task.ti.run_id: {"crew": state}}

    with monkeypatch.context() as patched:
        if state:  # else Airflow does not say
            patched.setattr(f"{RUNNER}.get_task_states", lambda *_, **__: states)
        with pytest.raises(CrewTaskFailed) as caught:
            task.run()

    assert isinstance(caught.value.failure, UncertainKickoff)
    assert store.kickoff["kickoff_id"] is None
    assert store.kickoff["reported"] is (state != "restarting")
    task.clear()
    if state == "restarting":
        with pytest.raises(CrewTaskFailed) as again:
            task.run()
        assert isinstance(again.value.failure, UncertainKickoff)
        task.clear()
    assert task.run() == live_crew.kickoffs[1].kickoff_id


def test_connection_removed_before_the_kickoff_is_not_missed(live_crew, store, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS", json.dumps({"conn_type": "http", "password": "webhook-secret-2718"}))

    def forget(request: Any) -> None:
        if request.operation == "inputs":
            for name in (CONNECTION, "AIRFLOW_CONN_HOOKS"):
                monkeypatch.delenv(name, raising=False)

    live_crew.after = forget
    webhooks = {"url": "https://hooks.example", "events": ["task_completed"]}

    assert Task(lambda: kickoff(webhooks=webhooks, webhook_conn_id="hooks"), store=store).run()
    assert len(live_crew.kickoffs) == 1
