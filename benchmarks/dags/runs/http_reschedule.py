"""What a user writes with the HTTP provider: as its documentation does, with the result handed on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sdk import DAG, PokeReturnValue

from benchmarks.lanes import LANES, POLL_INTERVAL, inputs_of
from benchmarks.next_task import use

if TYPE_CHECKING:
    from requests import Response


def result_of(response: Response) -> PokeReturnValue:
    """Tell whether an execution is over, and hand on its result."""
    status = response.json()
    if status["status"] == "error":
        raise RuntimeError(status["error"])
    return PokeReturnValue(is_done=status["status"] == "completed", xcom_value=status.get("result"))


with DAG("http_reschedule", schedule=None):
    for lane in range(LANES):
        kickoff = HttpOperator(
            task_id=f"kickoff_{lane}",
            http_conn_id="crew_http",
            endpoint="kickoff",
            data=json.dumps({"inputs": inputs_of(lane)}),
            headers={"Content-Type": "application/json"},
            response_filter=lambda response: response.json()["kickoff_id"],
        )
        result = HttpSensor(
            task_id=f"crew_{lane}",
            http_conn_id="crew_http",
            endpoint=f"status/{{{{ ti.xcom_pull(task_ids='kickoff_{lane}') }}}}",
            response_check=result_of,
            mode="reschedule",
            poke_interval=POLL_INTERVAL,
        )
        kickoff >> result
        use.override(task_id=f"next_{lane}")(result.output)
