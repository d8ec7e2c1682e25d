"""A task that kicks off, and a sensor that is started anew for every poll."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from benchmarks.lanes import LANES, POLL_INTERVAL, inputs_of
from benchmarks.next_task import use

with DAG("ours_reschedule", schedule=None):
    for lane in range(LANES):
        kickoff = CrewKickoffOperator(task_id=f"kickoff_{lane}", inputs=inputs_of(lane))
        result = CrewExecutionSensor(
            task_id=f"crew_{lane}",
            kickoff_id=kickoff.output,
            mode="reschedule",
            deferrable=False,
            poke_interval=POLL_INTERVAL,
        )
        use.override(task_id=f"next_{lane}")(result.output)
