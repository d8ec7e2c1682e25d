"""What a user writes with nothing: a function that polls and sleeps in its worker."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import DAG, Connection, task

from benchmarks.lanes import LANES, POLL_INTERVAL, inputs_of
from benchmarks.next_task import use

_REQUEST_TIMEOUT = 30


@task
def run_crew(lane: int, run_id: str | None = None) -> Any:
    """Kick off, and look until it is over."""
    import requests

    connection = Connection.get("crew_http")
    url = f"{connection.schema}://{connection.host}:{connection.port}"
    with requests.Session() as session:
        session.headers.update(connection.extra_dejson)
        inputs = inputs_of(lane, run_id or "")
        kickoff = session.post(f"{url}/kickoff", json={"inputs": inputs}, timeout=_REQUEST_TIMEOUT)
        kickoff.raise_for_status()
        while True:
            answer = session.get(f"{url}/status/{kickoff.json()['kickoff_id']}", timeout=_REQUEST_TIMEOUT)
            answer.raise_for_status()
            status = answer.json()
            if status["status"] == "completed":
                return status["result"]
            if status["status"] == "error":
                raise RuntimeError(status["error"])
            time.sleep(POLL_INTERVAL)


with DAG("python_sleep", schedule=None):
    for lane in range(LANES):
        use.override(task_id=f"next_{lane}")(run_crew.override(task_id=f"crew_{lane}")(lane))
