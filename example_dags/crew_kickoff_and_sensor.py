"""A task that kicks a crew off, and one that waits for it."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

with DAG(
    "crew_kickoff_and_sensor",
    schedule=None,
    tags=["crew"],
    params={"topic": "electric ferries", "audience": "harbour masters"},
    doc_md="""
    ### A task that kicks a crew off, and one that waits for it

    The kickoff costs money and has no retries; waiting costs nothing and has some. Whatever happens to the sensor,
    clear it, and it waits for the same execution again. Before Airflow 3.3 this is the only way that never starts
    a crew twice.
    """,
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
        poke_interval=2,
        timeout=timedelta(hours=2),
        retries=2,
    )
