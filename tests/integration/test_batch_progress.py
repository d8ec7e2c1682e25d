"""Progress of a batch in XCom, which the Crew tab and alerts show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_crew.batch.rows import STATUSES
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.exceptions import CrewTaskFailed, EndedByAirflow
from tests.integration.tasks import SLOW
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


def test_sentences_are_pushed_before_the_first_kickoff(live_crew, batch):
    pushed: list[dict[str, Any]] = []
    live_crew.at_kickoff = lambda: pushed.extend(live_crew.xcoms.progress[:1])
    batch().run()

    lost = pushed[0]["if_lost"]
    assert lost["cost"] == Cost.UNKNOWN.value
    assert {"billed", "if_retried", "next_step", "choices"} <= lost.keys()


def test_batch_without_news_is_pushed_again(live_crew, batch, timing):
    timing(batch_progress=0.05)
    live_crew.scenario = SLOW
    live_crew.at_look(40, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    batch(1).run()

    waiting = [each["polled_at"] for each in live_crew.xcoms.progress if each["batch"]["running"]]
    assert len(waiting) > 4
    assert waiting == sorted(set(waiting))


def test_manifest_of_a_cancelled_batch_says_so(live_crew, batch, out, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    task = batch(cancel_on_kill=True)
    begun = task.begin()
    live_crew.after = lambda _: begun.on_kill() if len(live_crew.kickoffs) == 4 else None
    with pytest.raises(CrewTaskFailed) as raised:
        begun.execute(task.context)
    assert isinstance(raised.value.failure, EndedByAirflow)

    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["terminal_reason"] == "cancelled"
    assert manifest["counts"] == dict.fromkeys(STATUSES, 0) | {"cancelled": 4, "not_started": 6}
