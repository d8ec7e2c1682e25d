"""
Have a crew explain why a task failed and post the explanation to the team's chat.

Needs the connections `crew_default` and `chat`, whose password is the URL of an incoming webhook.

Costs one execution for each run in which `load_prices` fails, and none for the others.
"""

from typing import Any

from airflow.sdk import DAG, BaseHook, task


def keep_error(context: Any) -> None:
    context["ti"].xcom_push(key="error", value=str(context["exception"])[:2000])


with DAG("crew_explains_failure", schedule=None, tags=["crew"], doc_md=__doc__):

    @task(on_failure_callback=keep_error)
    def load_prices() -> None:
        raise ValueError("Column 'price' is missing in prices_2026-11-23.csv")

    @task
    def publish_prices() -> None:
        print("Published")

    @task.crew(trigger_rule="all_failed", deferrable=True)
    def explain(ti: Any = None) -> dict[str, str]:
        error = ti.xcom_pull(task_ids="load_prices", key="error")
        return {"topic": f"Airflow task load_prices failed: {error}", "audience": "the engineer on call"}

    @task
    def post(explanation: dict[str, Any]) -> None:
        import requests

        url = BaseHook.get_connection("chat").password
        requests.post(url, json={"text": explanation["output"]}, timeout=10).raise_for_status()

    explanation = explain()
    load_prices() >> [publish_prices(), explanation]
    post(explanation)
