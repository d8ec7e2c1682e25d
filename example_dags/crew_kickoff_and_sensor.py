"""
Run a crew in two tasks: a kickoff and a sensor.

The kickoff is billed, so it has no retries. The sensor only waits. If it fails, retrying or
clearing it waits for the same execution.
"""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

with DAG(
    "crew_kickoff_and_sensor",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md=__doc__,
):
    kickoff = CrewKickoffOperator(
        task_id="kickoff",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        retries=0,
    )
    CrewExecutionSensor(
        task_id="result",
        kickoff_id=kickoff.output,
        deferrable=True,
        timeout=timedelta(hours=2),
        retries=2,
    )
