"""An email about each run whose crew fails: the event, its cost, the next step and links."""

from airflow.providers.common.compat.sdk import DAG
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

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
        inputs={"topic": "electric ferries", "audience": "harbour masters"},
        deferrable=True,
    )
