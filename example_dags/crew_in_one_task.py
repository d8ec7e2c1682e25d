"""
Run a crew in one task.

While the crew works, the task is deferred: it holds no worker slot, and the triggerer logs the crew's
progress. The result is the task's return value.

Needs Airflow 3.3 (on 3.1 and 3.2, remove `retries`) and the connection `crew_default`.

Costs one execution. If the crew fails, the retry starts and pays for another. After an outage or a
killed worker, the retry reattaches to the same execution.
"""

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_in_one_task",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md=__doc__,
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        deferrable=True,
        retries=1,
    )
