"""A task that kicks off, and one that waits in the triggerer."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from benchmarks.cost_lanes import INPUTS, LANES, POLL_INTERVAL

with DAG("ours_split", schedule=None):
    for lane in range(LANES):
        kickoff = CrewKickoffOperator(task_id=f"kickoff_{lane}", inputs=INPUTS)
        CrewExecutionSensor(
            task_id=f"result_{lane}", kickoff_id=kickoff.output, deferrable=True, poke_interval=POLL_INTERVAL
        )
