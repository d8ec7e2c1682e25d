"""
Answer a crew from Airflow (experimental).

When the crew asks, read its draft in the Crew tab of the task, and approve it, send it back with a text, or
answer its question. Without an answer, the task fails after three days.

Needs Airflow 3.3, the connection `crew_human_input`, to a crew that waits, and `[crew] events_url` and
`[crew] webhook_conn_id` in Airflow's configuration. Without them, answer in the crew's dashboard.

Costs one execution, and the tokens of each draft that you send back.
"""

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_answer_in_airflow",
    schedule=None,
    tags=["crew"],
    params={"topic": "the new refund policy", "audience": "customers"},
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
