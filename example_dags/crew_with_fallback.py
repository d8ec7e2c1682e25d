"""
Continue with a fallback if the crew fails.

If `report` fails, `last_weeks_report` replaces its report, and the DAG run succeeds. That includes
failures after which the crew may still be running, such as a long outage. Its execution is billed, but
its report is not published. So `report` sends an alert with the cost of its failure.

Needs Airflow 3.3 (on 3.1 and 3.2, remove `retries`) and the connections `crew_default` and `chat`,
whose password is the URL of an incoming webhook.

Costs one execution, or two if the first one fails: the retry starts another.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseHook, task

from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewRunOperator


def post_to_chat(subject: str, text: str) -> None:
    import requests

    url = BaseHook.get_connection("chat").password
    requests.post(url, json={"text": f"{subject}\n{text}"}, timeout=10).raise_for_status()


with DAG(
    "crew_with_fallback",
    schedule=None,
    tags=["crew"],
    params={"topic": "the stock market", "audience": "investors"},
    doc_md=__doc__,
):
    report = CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        deferrable=True,
        retries=1,
        retry_delay=timedelta(seconds=5),
        on_failure_callback=CrewAlert(post_to_chat),
    )

    @task(trigger_rule="all_failed")
    def last_weeks_report() -> dict[str, Any]:
        return {"output": "Last week's report."}

    @task(trigger_rule="one_success")
    def publish(fresh: dict[str, Any] | None, fallback: dict[str, Any] | None) -> str:
        text: str = (fresh or fallback or {})["output"]
        return text.splitlines()[0]

    fallback = last_weeks_report()
    report >> fallback
    publish(report.output, fallback)
