"""An e-mail about each crew that fails: what happened, what is paid for, what to do, and which execution it is."""

from html import escape
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator


def alert(context: Any) -> None:
    """Airflow calls this in the process of the task, or in the DAG processor if that process is no more."""
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    ti, failure = context["ti"], context.get("exception")
    if hasattr(failure, "told"):  # it comes from this provider
        kickoff_id, money = failure.kickoff_id, failure.cost
        lines = [*failure.told().values(), *failure.more.splitlines()]
    else:
        kickoff_id = ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index, key="kickoff_id")
        money = "running" if kickoff_id else "unknown"
        lines = [str(failure or "The process of the task has died. Its log ends before it could say why.")]
    lines.append(f"Execution: {kickoff_id or 'none is known'}")
    SmtpNotifier(
        to="on-call@example.com",
        subject=f"[{money}] {ti.dag_id}.{ti.task_id} in {ti.run_id}",
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
