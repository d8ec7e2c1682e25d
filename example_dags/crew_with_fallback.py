"""
Continue with a fallback if the crew fails.

If the crew fails, a retry starts it once more. If the retry also fails, or the crew is unreachable,
`last_weeks_report` replaces its report.
"""

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_with_fallback",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md=__doc__,
):
    report = CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        deferrable=True,
        retries=1,
        retry_delay=timedelta(seconds=5),
    )

    @task(trigger_rule="all_failed")
    def last_weeks_report() -> dict[str, Any]:
        return {"output": "Last week's report."}

    @task(trigger_rule="one_success")
    def publish(fresh: dict[str, Any] | None, fallback: dict[str, Any] | None) -> str:
        text: str = (fresh or fallback or {})["output"]
        return text.splitlines()[0]

    fallback = last_weeks_report()
    report >> fallback
    publish(report.output, fallback)
