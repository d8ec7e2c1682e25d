"""Publish a crew's report after a person has approved it in Airflow."""

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task
from airflow.providers.standard.operators.hitl import ApprovalOperator

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG("crew_approval", schedule=None, tags=["crew"], doc_md=__doc__):
    report = CrewRunOperator(
        task_id="report",
        inputs={"topic": "electric ferries", "audience": "harbour masters"},
        deferrable=True,
    )
    approval = ApprovalOperator(
        task_id="approval",
        subject="May this report be published?",
        body="{{ ti.xcom_pull(task_ids='report')['output'] }}",
        defaults="Reject",
        response_timeout=timedelta(days=2),
    )

    @task
    def publish(result: dict[str, Any]) -> str:
        headline: str = result["output"].splitlines()[0]
        return f"Published: {headline}"

    report >> approval >> publish(report.output)
