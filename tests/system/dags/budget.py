"""More mapped tasks than kickoffs that are allowed in a day, all ready to kick off before the first one does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.versions import HAS_STORE

TASKS = 6


@dag(schedule=None, max_active_tasks=TASKS, params={"meet_in": ""})
def budget():
    @task.crew(crew_conn_id="crew_budgeted", deferrable=False, retries=int(HAS_STORE))
    def report(number: int, params: Any = None) -> dict[str, Any]:
        meet_in = Path(params["meet_in"])
        (meet_in / str(number)).touch()
        while len([*meet_in.iterdir()]) < TASKS:
            time.sleep(0.1)
        return {"topic": f"harbour {number}", "audience": "sailors"}

    report.expand(number=[*range(TASKS)])


budget()
