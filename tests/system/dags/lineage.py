"""Tasks that tell OpenLineage what they ran; no other DAG here does."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG
from airflow.providers.openlineage.utils.selective_enable import enable_lineage

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

INPUTS = {"topic": "ferries", "audience": "sailors"}

with DAG("lineage", schedule=None, default_args={"crew_conn_id": "crew_default"}) as dag:
    kickoff = CrewKickoffOperator(task_id="kickoff", inputs=INPUTS)
    CrewExecutionSensor(task_id="sensor", kickoff_id=kickoff.output, deferrable=True)
    CrewRunOperator(task_id="run", inputs=INPUTS, deferrable=True)

enable_lineage(dag)
