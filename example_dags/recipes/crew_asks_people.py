"""A crew that asks a person, and a call to an address of yours when it does."""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_asks_people",
    schedule=None,
    tags=["crew"],
    doc_md=__doc__,
    params={"crew": "crew_default", "who_is_told": "https://hooks.example.com/crew-waits"},
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "electric ferries", "audience": "harbour masters"},
        crew_conn_id="{{ params.crew }}",
        human_input_webhook_url="{{ params.who_is_told }}",
        deferrable=True,
        timeout=timedelta(days=3),
    )
