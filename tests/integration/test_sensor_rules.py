"""The sensor waits and ends alike in poke mode, in reschedule mode and deferred."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException

from airflow_provider_crew.client.errors import InvalidSettings
from airflow_provider_crew.client.watch import Watch
from tests.integration.operators import in_every_mode, sensor
from tests.integration.tasks import CONNECTION, SLOW, Task, poked, sensors_remember

pytest_plugins = ["tests.integration.task_fixtures"]

RESCHEDULE: dict[str, Any] = {"mode": "reschedule"}

RUNNING = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}


def waiting(kickoff_id: Any, **options: Any) -> Task:
    store = options.pop("store", None)
    return Task(lambda: sensor(kickoff_id, **options), store=store)


@in_every_mode
def test_unusable_connection_is_read_again_until_it_is_fixed(live_crew, monkeypatch, mode):
    kickoff_id, note = live_crew.new_execution(), Watch.on_error

    def fix_connection(watch: Watch, error: Any) -> Any:
        monkeypatch.setenv(CONNECTION, live_crew.connection_uri)
        assert isinstance(error, InvalidSettings)
        return note(watch, error)

    monkeypatch.setenv(CONNECTION, "crew://nowhere")
    monkeypatch.setattr(Watch, "on_error", fix_connection)

    assert poked(waiting(kickoff_id, **mode))["kickoff_id"] == kickoff_id
    assert live_crew.requests.on("status")


@pytest.mark.parametrize("remembering", [True, False])
def test_next_poke_is_after_the_interval_or_at_the_deadline(live_crew, store, remembering):
    kickoff_id = live_crew.new_execution(SLOW)
    for timeout, seconds in [(3600, (54.0, 66.0)), (30, (0.0, 30.0))]:
        task = waiting(
            kickoff_id, **RESCHEDULE, poke_interval=60, timeout=timeout, store=store if remembering else None
        )
        now = datetime.now(UTC)

        with pytest.raises(AirflowRescheduleException) as caught:
            task.run()

        after, took = caught.value.reschedule_date, datetime.now(UTC) - now
        assert after.tzinfo is not None
        assert seconds[0] <= (after - now).total_seconds() <= seconds[1] + took.total_seconds()


@sensors_remember
def test_poke_without_news_stores_nothing(live_crew, store):
    kickoff_id = live_crew.new_execution(SLOW)
    later = RUNNING | {"current_task": "review_task"}
    live_crew.set_status(kickoff_id, *[RUNNING] * 3, *[later] * 3, {"status": "completed", "result": "x"})
    asked: list[str] = []
    store.breaks_at = asked.append

    poked(waiting(kickoff_id, **RESCHEDULE, store=store))

    assert (asked.count("get"), asked.count("set")) == (7, 2)
