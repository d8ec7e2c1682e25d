"""
Retry after an outage, and never start a second billed execution.

Needs Airflow 3.3 and the connection `crew_default`.

Costs one execution. To start another, clear the task after the crew fails.
"""

from datetime import timedelta

from airflow.sdk import DAG, ExceptionRetryPolicy, RetryAction, RetryRule

from airflow_provider_crew.operators.crew import CrewRunOperator

ERRORS = "airflow_provider_crew.exceptions"

NEVER_PAY_TWICE = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=[f"{ERRORS}.ExecutionFailed", f"{ERRORS}.BatchFailed"],
            action=RetryAction.FAIL,
            reason="What has failed is billed. Clear the task to start it again.",
        ),
        RetryRule(
            exception=[f"{ERRORS}.TransientError", f"{ERRORS}.LostContact"],
            action=RetryAction.RETRY,
            retry_delay=timedelta(minutes=10),
            reason="The crew is unreachable. A retry reattaches to the execution, or starts one if there is none.",
        ),
    ],
)

with DAG("crew_retry_policy", schedule=None, tags=["crew"], doc_md=__doc__):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "supplier risks", "audience": "purchasing"},
        deferrable=True,
        retries=5,
        retry_policy=NEVER_PAY_TWICE,
    )
