"""Measures the triggerer while a batch is deferred."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from benchmarks.batch_rows import LAG
from benchmarks.lag import MeasureLoopLag

with DAG("loop_lag", schedule=None):
    MeasureLoopLag(task_id="measure", path=LAG)
