"""
Update an asset when a crew completes, and start a second DAG on each update.

When the task succeeds, Airflow sends an asset event, which starts the DAG `crew_asset_reader`. The
event's `extra` contains `kickoff_id`, `usage` and `execution_time`, and your own values from
`outlet_events`. It identifies the DAG, run and task whose XCom contains the result.

Needs the connection `crew_default`.

Costs one execution for each run of `crew_asset`, and none for `crew_asset_reader`.
"""

from typing import Any

from airflow.sdk import DAG, Asset, task

from airflow_provider_crew.operators.crew import CrewRunOperator

REPORT = Asset("crew://reports/inflation")

with DAG(
    "crew_asset",
    schedule=None,
    tags=["crew"],
    params={"topic": "inflation", "audience": "economists"},
    doc_md=__doc__,
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        outlets=[REPORT],
        deferrable=True,
    )

with DAG("crew_asset_reader", schedule=[REPORT], tags=["crew"], doc_md=__doc__):

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
