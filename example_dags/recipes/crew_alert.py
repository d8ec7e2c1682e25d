"""
Send an email if a crew fails: the event, its cost, the next step and links.

Needs the connections `crew_default` and `smtp_default`, and `apache-airflow-providers-smtp`.

Costs one execution. The alert costs nothing.
"""

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG

from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewRunOperator

email = SmtpNotifier(
    to="on-call@example.com",
    subject="{{ crew_alert.subject }}",
    html_content="<pre>{{ crew_alert.text | e }}</pre>",
)

with DAG("crew_alert", schedule=None, tags=["crew"], doc_md=__doc__, on_failure_callback=CrewAlert(email)):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "delayed deliveries", "audience": "the warehouse"},
        deferrable=True,
    )
