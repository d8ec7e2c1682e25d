"""Rows of a batch whose response is lost, and whose crew calls: cleared, marked and cancelled in between."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from airflow_provider_crew.exceptions import CrewError, CrewTaskFailed
from tests.airflow_runs import eventually
from tests.integration.tasks import QUICK, SLOW, Task, TaskStateStore
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


@pytest.fixture(autouse=True)
def settling(monkeypatch: pytest.MonkeyPatch, live_crew: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CREW_WEBHOOK", json.dumps({"conn_type": "generic", "password": "secret-123"}))
    settings = {"EVENTS_URL": "http://127.0.0.1:9/events", "WEBHOOK_CONN_ID": "crew_webhook"}
    for name, value in (settings | {"SETTLE_KICKOFFS": "True", "SETTLE_WITHIN": "20"}).items():
        monkeypatch.setenv(f"AIRFLOW__CREW__{name}", value)
    live_crew.faults.reset(on="kickoff", after_taken=True)


def call(store: TaskStateStore, **ids: str) -> bool:
    """Store what the receiver stores for a call. Return whether a kickoff waits for one."""
    for key, text in [*store.texts.items()]:
        if key.startswith("crew_batch_"):
            for each in json.loads(text)["facts"]:
                if each.get("call"):
                    store.texts[f"crew_heard_{each['call']}"] = json.dumps(ids)
                    return True
    return False


def has_called(live_crew: Any, store: TaskStateStore) -> bool:
    """Let the crew call as soon as it can, and return whether it has."""
    return bool(live_crew.kickoffs) and call(store, kickoff_id=live_crew.kickoffs[0].kickoff_id)


def told(act: Callable[[], Any]) -> None:
    threading.Thread(target=act).start()


def begun(task: Task) -> Any:
    operator = task.begin()
    return operator, lambda: operator.execute(task.context)


def test_cleared_batch_reports_before_it_starts_another(live_crew, batch, monkeypatch):
    live_crew.scenario = SLOW
    task = batch(1, max_outage=1, timeout=10)
    operator, run = begun(task)
    told(lambda: (eventually(lambda: live_crew.kickoffs, pause=0.05), operator.on_kill()))
    with pytest.raises(CrewError):
        run()
    assert live_crew.xcoms.progress[-1]["end"]["if_cleared"].startswith("reports 1 uncertain row,")
    monkeypatch.setenv("AIRFLOW__CREW__SETTLE_WITHIN", "0.5")
    task.clear()
    with suppress(CrewTaskFailed):
        task.run()
    assert len(live_crew.kickoffs) == 1


def test_kickoff_that_settles_survives_a_clear_that_deletes_the_state(live_crew, batch, store):
    live_crew.scenario = QUICK
    task = batch(2, max_failed=None)
    operator, run = begun(task)
    told(lambda: (eventually(lambda: len(live_crew.kickoffs) == 2, pause=0.05), operator.on_kill()))
    with pytest.raises(CrewError):
        run()
    store.texts.clear()
    task.clear()
    assert task.run()["counts"]["uncertain"] == 1
    assert len(live_crew.kickoffs) == 2


def test_metrics_count_a_settled_row_as_started(live_crew, batch, store, counted):
    told(lambda: eventually(lambda: has_called(live_crew, store), pause=0.05))
    assert batch(1).run()["counts"]["success"] == 1
    assert (counted["crew.kickoff.started"], counted["crew.kickoff.uncertain"]) == (1, 0)


def test_id_of_another_row_settles_nothing(live_crew, batch, store):
    live_crew.scenario = QUICK

    def names_the_other_row() -> bool:
        texts = [text for key, text in store.texts.items() if key.startswith("crew_batch_")]
        facts = [each for text in texts for each in json.loads(text)["facts"]]
        named = [each["kickoff_id"] for each in facts if each["what"] == "named"]
        return bool(named) and call(store, kickoff_id=named[0])

    told(lambda: eventually(names_the_other_row, pause=0.05))
    counts = batch(2, max_failed=None).run()["counts"]
    assert (counts["success"], counts["uncertain"]) == (1, 1)


def test_marked_batch_cancels_what_has_called(live_crew, batch, store, mocker):
    live_crew.scenario = SLOW
    mocker.patch("airflow_provider_crew.api_server.has_ended", return_value=True)
    operator, run = begun(batch(1, max_outage=1, timeout=60, cancel_on_kill=True))

    def mark() -> None:
        eventually(lambda: live_crew.kickoffs, pause=0.05)
        call(store, kickoff_id=live_crew.kickoffs[0].kickoff_id)
        operator.on_kill()

    told(mark)
    with pytest.raises(CrewTaskFailed):
        run()
    assert live_crew.requests.on("stop")


def test_late_call_survives_a_clear_that_deletes_the_state(live_crew, batch, store, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setenv("AIRFLOW__CREW__SETTLE_WITHIN", "0.1")
    task = batch(1, deferrable=True, timeout=10)
    with pytest.raises(CrewTaskFailed):
        task.run()
    assert has_called(live_crew, store)
    task.clear()
    task.deferred()
    store.texts.clear()
    task.clear()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    assert task.run()["counts"]["success"] == 1
    assert len(live_crew.kickoffs) == 1
