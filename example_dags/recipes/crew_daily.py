"""
Run a crew for each day.

Airflow keeps the DAG paused until you unpause it, because each run is billed.

Needs the connection `crew_default` and the pool `crews`, which must count deferred tasks.

Costs one execution for each day, including each day of a backfill.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_daily",
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    tags=["crew"],
    doc_md=__doc__,
):
    CrewRunOperator(
        task_id="news",
        inputs={"topic": "news of {{ ds }}", "audience": "editors"},
        pool="crews",
        deferrable=True,
    )
