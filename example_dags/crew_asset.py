"""Update an asset when a crew completes, and start a second DAG on each update."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, dag, task

from airflow_provider_crew.operators.crew import CrewRunOperator

REPORT = Asset("crew://reports/ferries")

with DAG(
    "crew_asset",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md="""
    ### Update an asset when a crew completes

    When the task succeeds, Airflow sends an asset event, which starts the DAG `crew_asset_reader`. The event's
    `extra` contains `kickoff_id`, `usage` and `execution_time`, and your own values from `outlet_events`.
    """,
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        outlets=[REPORT],
        deferrable=True,
        poll_interval=2,
    )


@dag(schedule=[REPORT], tags=["crew"])
def crew_asset_reader() -> None:
    """
    ### Publish the report of the newest asset event.

    The event identifies the execution, and the DAG, run and task whose XCom contains the result.
    """

    @task(inlets=[REPORT])
    def publish(inlet_events: Any = None, ti: Any = None) -> str:
        event = inlet_events[REPORT][-1]
        result = ti.xcom_pull(
            dag_id=event.source_dag_id, run_id=event.source_run_id, task_ids=event.source_task_id
        )
        headline = result["output"].splitlines()[0]
        seconds = event.extra["execution_time"]  # None if the crew reports no times
        duration = "" if seconds is None else f" in {seconds:.0f} s"
        return f"{headline}, by execution {event.extra['kickoff_id']}{duration}"

    publish()


crew_asset_reader()
