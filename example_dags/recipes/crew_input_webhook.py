"""
Run a crew that calls a webhook when it needs human input.

Needs the connections `crew_default`, to a crew that waits, and `crew_webhook`, whose password is the
webhook's secret, and a program that receives the webhook.

Costs one execution.
"""

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_input_webhook",
    schedule=None,
    tags=["crew"],
    doc_md=__doc__,
    params={"webhook_url": "https://hooks.example.com/human-input"},
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "the new office", "audience": "journalists"},
        human_input_webhook_url="{{ params.webhook_url }}",
        webhook_conn_id="crew_webhook",
        deferrable=True,
        timeout=timedelta(days=3),
    )
