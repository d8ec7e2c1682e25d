"""
Run a crew each Monday, with everything that a crew in production needs. Copy this one.

It runs on a schedule, waits in the triggerer, retries, checks the output, and reports a failure with
its cost. The pool limits how many crews run at once, and the connection limits how many start in a day.
Airflow keeps the DAG paused until you unpause it, because each run is billed.

Needs Airflow 3.3 (on 3.1 and 3.2, remove `retries`), the connection `crew_json`, to a crew that returns
this JSON, with **Kickoffs per day** set, and the DAG `crew_budget`, which counts them. Also needs the
connection `chat`, whose password is the URL of an incoming webhook, and a pool:
`airflow pools set crews 4 "Concurrent crews" --include-deferred`

Costs one execution a week. If the crew fails, each of the two retries starts and pays for another.
After an outage or a killed worker, a retry reattaches to the same execution.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseHook, task

from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewRunOperator


@dataclass
class Headline:
    """One announcement of a competitor."""

    text: str
    urgent: bool


@dataclass
class Brief:
    """Output of the crew, as JSON."""

    title: str
    headlines: list[Headline]


def post_to_chat(subject: str, text: str) -> None:
    import requests

    url = BaseHook.get_connection("chat").password
    requests.post(url, json={"text": f"{subject}\n{text}"}, timeout=10).raise_for_status()


with DAG(
    "crew_production",
    schedule="0 6 * * MON",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    tags=["crew"],
    doc_md=__doc__,
    on_failure_callback=CrewAlert(post_to_chat),
):
    brief = CrewRunOperator(
        task_id="brief",
        inputs={
            "topic": "competitors in the week before {{ dag_run.run_after | ds }}",
            "audience": "the sales team",
        },
        crew_conn_id="crew_json",
        output_type=Brief,
        pool="crews",
        deferrable=True,
        timeout=timedelta(hours=1),
        retries=2,
        retry_delay=timedelta(minutes=10),
    )

    @task
    def publish(result: dict[str, Any]) -> list[str]:
        return [headline["text"] for headline in result["output_json"]["headlines"] if headline["urgent"]]

    publish(brief.output)
