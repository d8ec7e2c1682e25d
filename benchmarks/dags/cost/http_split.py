"""The same with the HTTP provider, for an API that answers 404 until there is a result. The result is not read."""

from __future__ import annotations

import json

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sdk import DAG

from benchmarks.cost_lanes import INPUTS, LANES, POLL_INTERVAL

with DAG("http_split", schedule=None):
    for lane in range(LANES):
        kickoff = HttpOperator(
            task_id=f"kickoff_{lane}",
            endpoint="kickoff",
            data=json.dumps({"inputs": INPUTS}),
            headers={"Content-Type": "application/json"},
            response_filter=lambda response: response.json()["kickoff_id"],
        )
        result = HttpSensor(
            task_id=f"result_{lane}",
            endpoint=f"results/{{{{ ti.xcom_pull(task_ids='kickoff_{lane}') }}}}",
            deferrable=True,
            poke_interval=POLL_INTERVAL,
        )
        kickoff >> result
