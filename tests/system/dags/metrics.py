"""Tasks that end in every way that Airflow's statistics tell apart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

INPUTS = {"topic": "ferries", "audience": "sailors"}

with DAG("metrics", schedule=None, max_active_tasks=100):
    kickoff = CrewKickoffOperator(task_id="kickoff", inputs=INPUTS, crew_conn_id="crew_lasting")
    modes: dict[str, dict[str, Any]] = {
        "deferred": {"deferrable": True},
        "poke": {"deferrable": False},
        "reschedule": {"deferrable": False, "mode": "reschedule"},
    }
    for mode, options in modes.items():
        CrewExecutionSensor(
            task_id=f"sensor_{mode}",
            kickoff_id=kickoff.output,
            crew_conn_id="crew_lasting",
            poke_interval=timedelta(seconds=4),
            **options,
        )
    CrewRunOperator(task_id="failed", inputs=INPUTS, crew_conn_id="crew_failing", deferrable=True, poll_interval=1)
    CrewRunOperator(task_id="timeout", inputs=INPUTS, crew_conn_id="crew_slow", timeout=3, poll_interval=1)
    CrewRunOperator(task_id="lost", inputs=INPUTS, crew_conn_id="crew_vanishing", poll_interval=1, max_outage=2)
    CrewRunOperator(task_id="unknown", inputs=INPUTS, crew_conn_id="crew_asking", poll_interval=1, max_outage=2)
    CrewRunOperator(task_id="paused", inputs=INPUTS, crew_conn_id="crew_pausing", deferrable=True, poll_interval=1)
    CrewKickoffOperator(task_id="not_taken", inputs=INPUTS, crew_conn_id="crew_refused", validate_inputs=False)
    CrewKickoffOperator(task_id="uncertain", inputs=INPUTS, crew_conn_id="crew_answerless")
