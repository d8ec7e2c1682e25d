"""An email about each crew that fails: the event, its cost, the next step and the execution."""

from html import escape
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator


def alert(context: Any) -> None:
    """Send an email. Airflow calls this in the task's process, or in the DAG processor if that was killed."""
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    ti, failure = context["ti"], context.get("exception")
    if hasattr(failure, "cost"):  # raised by this provider
        kickoff_id, cost = failure.kickoff_id, failure.cost
        lines = str(failure).splitlines()
    else:
        kickoff_id = ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index, key="kickoff_id")
        cost = "running" if kickoff_id else "unknown"
        lines = [str(failure or "The task's process was killed, so its log ends without an error.")]
    lines.append(f"Execution: {kickoff_id or 'none is known'}")
    SmtpNotifier(
        to="on-call@example.com",
        subject=f"[{cost}] {ti.dag_id}.{ti.task_id} in {ti.run_id}",
        html_content="<br>".join(escape(line) for line in lines),
    ).notify(context)


with DAG(
    "crew_alert",
    schedule=None,
    tags=["crew"],
    doc_md=__doc__,
    default_args={"on_failure_callback": alert},
):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "electric ferries", "audience": "harbour masters"},
        deferrable=True,
    )
