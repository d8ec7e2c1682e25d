"""
Run a crew in one task.

The task occupies a worker only to start the execution and to return the result. While the crew works, the
task is deferred, and the triggerer logs the crew's progress. The result is the task's return value.

If the crew fails, Airflow retries the task once, which starts a new execution. On Airflow 3.3 and later, a
retry after an outage or a killed worker reattaches to the same execution.
"""

from airflow.providers.common.compat.sdk import DAG

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
