"""One task of each kind that leaves something in Airflow's database while an execution goes on."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, task

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

INPUTS = {"topic": "ferries", "audience": "sailors"}
REPORT = Asset("crew://stored/report")

with DAG("stored", schedule=None):
    CrewRunOperator(task_id="report", inputs=INPUTS, deferrable=True, retries=1)
    CrewRunOperator(task_id="failing", crew_conn_id="crew_failing", inputs=INPUTS, deferrable=True, retries=0)

    kickoff = CrewKickoffOperator(task_id="kickoff", inputs=INPUTS, retries=1)
    CrewExecutionSensor(task_id="result", kickoff_id=kickoff.output, deferrable=True)
    CrewExecutionSensor(task_id="rescheduled", kickoff_id=kickoff.output, mode="reschedule")

    @task.crew(deferrable=True, retries=1, map_index_template="about {{ topic }}", outlets=[REPORT])
    def brief(topic: str, **context: Any) -> dict[str, Any]:
        context["ti"].task.log.info("A function that is called once, before the kickoff.")
        context["outlet_events"][REPORT].extra = {"topic": topic}
        return {"topic": topic, "audience": "sailors"}

    brief.expand(topic=["ferries"])
