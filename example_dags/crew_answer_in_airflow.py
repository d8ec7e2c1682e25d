"""
Answer a crew under Required Actions.

Experimental. When the crew asks, read its draft under Required Actions, and approve it, send it back with a text,
or answer its question. Without an answer, the task fails after three days.

The connection `crew_human_input` points to a crew that waits. Airflow needs `[crew] events_url` and
`[crew] webhook_conn_id`. Without them, answer in the crew's dashboard.
"""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_answer_in_airflow",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md=__doc__,
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        crew_conn_id="crew_human_input",
        answer_in_airflow=True,
        timeout=timedelta(days=3),
        deferrable=True,
    )
