"""
Run a crew for each row of a list, in one task.

At most four executions run at once. The task returns a manifest, which names the file with the result of each
row. One row fails, because it lacks an input. `max_failed` allows that, so the task succeeds.

Needs Airflow 3.3, the connection `crew_default` and, with more than one worker, a `results` folder that
all of them share, such as one in an object store.

Costs one execution for each row, here eight: the row that lacks an input fails before the kickoff.
"""

import json
from typing import Any

from airflow.sdk import DAG, ObjectStoragePath, task

from airflow_provider_crew.operators.crew import CrewBatchOperator

ROWS = [{"topic": f"product {number}", "audience": "buyers"} for number in range(1, 9)]
ROWS.append({"topic": "product 9"})
PARAMS = {"results": "/tmp/crew-batch"}

with DAG("crew_batch", schedule=None, tags=["crew"], params=PARAMS, doc_md=__doc__):
    reports = CrewBatchOperator(
        task_id="reports",
        inputs=ROWS,
        result_path="{{ params.results }}/{{ run_id }}",
        key="topic",
        max_active=4,
        max_failed=1,
        deferrable=True,
    )

    @task
    def summary(manifest: dict[str, Any]) -> list[str]:
        with ObjectStoragePath(manifest["results"]).open() as file:
            lines = [json.loads(line) for line in file]
        return sorted(line["raw_output"] for line in lines if line["status"] == "success")

    summary(reports.output)
