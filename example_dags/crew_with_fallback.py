"""A pipeline that goes on when the crew has failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.operators.crew import CrewRunOperator


@dag(
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters", "crew": "crew_default"},
)
def crew_with_fallback() -> None:
    """
    ### A pipeline that goes on when the crew has failed.

    A crew that fails is kicked off once more. If that fails too, or if the crew cannot be reached, the branch
    `last_weeks_report` takes its place.
    """
    report = CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        crew_conn_id="{{ params.crew }}",
        deferrable=True,
        poll_interval=2,
        retries=1,
        retry_delay=timedelta(seconds=5),
    )

    @task(trigger_rule="all_failed")
    def last_weeks_report() -> dict[str, Any]:
        return {"output": "What we knew last week."}

    @task(trigger_rule="one_success")
    def publish(fresh: dict[str, Any] | None, fallback: dict[str, Any] | None) -> str:
        text: str = (fresh or fallback or {})["output"]
        return text.splitlines()[0]

    fallback = last_weeks_report()
    report >> fallback
    publish(report.output, fallback)


crew_with_fallback()
