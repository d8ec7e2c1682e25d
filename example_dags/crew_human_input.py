"""
Run a crew that waits for a person.

While the crew waits, the task is deferred, and the Crew tab shows for how long. Answer in the crew's
dashboard. Without an answer, the task fails after three days.

Needs the connection `crew_human_input`, to a crew that waits. To run one on your machine:
`python -m airflow_provider_crew.local --scenario example_dags/crew_human_input.toml`

Costs one execution.
"""

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_human_input",
    schedule=None,
    tags=["crew"],
    params={"topic": "the new refund policy", "audience": "customers"},
    doc_md=__doc__,
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        crew_conn_id="crew_human_input",
        human_input=True,
        timeout=timedelta(days=3),
        deferrable=True,
    )
