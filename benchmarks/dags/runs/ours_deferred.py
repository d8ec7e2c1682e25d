"""One task that kicks off, and waits in the triggerer."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator
from benchmarks.lanes import LANES, POLL_INTERVAL, inputs_of
from benchmarks.next_task import use

with DAG("ours_deferred", schedule=None):
    for lane in range(LANES):
        crew = CrewRunOperator(
            task_id=f"crew_{lane}", inputs=inputs_of(lane), deferrable=True, poll_interval=POLL_INTERVAL
        )
        use.override(task_id=f"next_{lane}")(crew.output)
