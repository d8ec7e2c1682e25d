"""A large answer to one poll holds up no other watch on its event loop."""

from __future__ import annotations

import threading
import time
from typing import Any

from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import LARGEST_RESPONSE, read_event
from tests.integration.tasks import QUICK, fired

pytest_plugins = ["tests.integration.task_fixtures"]


async def test_large_answer_is_read_outside_the_event_loop(live_crew, monkeypatch):
    tasks = ",".join(["{}"] * ((LARGEST_RESPONSE - 200) // 3))
    body = f'{{"state": "SUCCESS", "result": {{"output": "x", "tasks": [{tasks}]}}}}'
    live_crew.scenario = QUICK
    kickoff_id = live_crew.take({}, None, {})
    readers = []

    def read(*given: Any, **named: Any) -> Any:
        readers.append(threading.get_ident())
        return read_execution(*given, **named)

    monkeypatch.setattr("airflow_provider_crew.client.api.read_execution", read)
    live_crew.faults.answer(200, body=body, on="status")
    rules = {"poll_interval": 0.05, "deadline": time.time() + 3600}

    end = read_event(await fired(CrewExecutionTrigger(kickoff_id, "crew_default", rules=rules)))

    assert (end.completed, end.result) == (True, None)
    # Read on the event loop, the tasks blocked all other triggers for 2.4 seconds.
    assert len(readers) == 1
    assert readers[0] != threading.get_ident()
