"""A DAG that cannot be loaded while a file beside it says so."""

from __future__ import annotations

from pathlib import Path

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

if Path(__file__).with_suffix(".broken").exists():
    raise RuntimeError("somebody is working on this file")

with DAG("unloadable", schedule=None):
    CrewRunOperator(
        task_id="report",
        inputs={"topic": "ferries", "audience": "sailors"},
        crew_conn_id="crew_slow",
        deferrable=True,
        poll_interval=1,
        retries=0,
    )
