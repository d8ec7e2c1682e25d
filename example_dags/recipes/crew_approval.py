"""
Publish a weekly market brief after a person approves it in Airflow.

Airflow keeps the DAG paused until you unpause it, because each run is billed.

Needs the connection `crew_default`.

Costs one execution a week. Approving and rejecting cost nothing, because the execution has ended by
then.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_approval",
    schedule="@weekly",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    tags=["crew"],
    doc_md=__doc__,
):
    brief = CrewRunOperator(
        task_id="brief",
        inputs={"topic": "electricity prices in the week of {{ dag_run.run_after | ds }}", "audience": "traders"},
        deferrable=True,
    )
    approval = ApprovalOperator(
        task_id="approval",
        subject="May this brief be published?",
        body="{{ ti.xcom_pull(task_ids='brief')['output'] }}",
        defaults="Reject",
        response_timeout=timedelta(days=2),
    )

    @task
    def publish(result: dict[str, Any]) -> str:
        headline: str = result["output"].splitlines()[0]
        return f"Published: {headline}"

    brief >> approval >> publish(brief.output)
