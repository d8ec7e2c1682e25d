"""One task that kicks a crew off and waits for its result."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_in_one_task",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md="""
    ### One task that kicks a crew off and waits for its result

    The task holds a worker only to kick off and to take the result. While the crew works, the task is deferred,
    and the triggerer writes the crew's progress into its log. The result is the task's XCom.

    A failed crew is retried once. From Airflow 3.3 on, a retry after anything else goes on with the same
    execution.
    """,
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        deferrable=True,
        poll_interval=2,
        retries=1,
    )
