"""
Page someone if an execution may be running, which the beginning of the alert's subject shows.

Needs the connections `crew_default`, and `pagerduty` with the address of PagerDuty's Events API v2 as host and the
integration key as password. Tested with a local receiver.

Costs one execution. The alert costs nothing.
"""

from airflow.sdk import DAG, BaseHook

from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewRunOperator


def page_on_call(subject: str, text: str) -> None:
    """Send an event to PagerDuty."""
    import requests

    if not subject.startswith(("[unknown]", "[running]", "[being cancelled]")):
        return
    pagerduty = BaseHook.get_connection("pagerduty")
    event = {
        "routing_key": pagerduty.password,
        "event_action": "trigger",
        "payload": {
            "summary": subject,
            "source": "airflow",
            "severity": "error",
            "custom_details": {"text": text},
        },
    }
    requests.post(str(pagerduty.host), json=event, timeout=10).raise_for_status()


with DAG("crew_page", schedule=None, tags=["crew"], doc_md=__doc__, on_failure_callback=CrewAlert(page_on_call)):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "delayed deliveries", "audience": "the warehouse"},
        deferrable=True,
    )
