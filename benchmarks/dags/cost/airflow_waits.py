"""Airflow's own deferred task, which does nothing but wait."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG

from benchmarks.cost_lanes import LANES, LATER

with DAG("airflow_waits", schedule=None):
    for lane in range(LANES):
        TimeDeltaSensor(task_id=f"result_{lane}", delta=timedelta(seconds=LATER), deferrable=True)
