"""
Run a crew in two tasks: a kickoff and a sensor.

The kickoff has no retries, because before Airflow 3.3, a retry would start a second execution. The sensor
never starts one, so retrying or clearing it waits for the same execution.

Needs the connection `crew_default`.

Costs one execution. Clearing `kickoff` starts and pays for another, unless the first is still running
(Airflow 3.3 and later).
"""

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

with DAG(
    "crew_kickoff_and_sensor",
    schedule=None,
    tags=["crew"],
    params={"topic": "heat pumps", "audience": "home owners"},
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
