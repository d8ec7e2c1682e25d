"""
Have a crew write a brief about each account of a table, and store the briefs in another table.

Needs Airflow 3.3, `apache-airflow-providers-postgres`, the connections `crew_default` and `warehouse`,
the two tables, and a bucket for the results.

Costs one execution for each account. A retry pays for accounts whose crew failed only if more of them failed
than `max_failed` allows.
"""

import json
from typing import Any

from airflow.sdk import DAG, ObjectStoragePath, task

from airflow_provider_crew.operators.crew import CrewBatchOperator

PARAMS = {"results": "s3://my-bucket/briefs"}

with DAG("crew_batch_into_table", schedule=None, tags=["crew"], params=PARAMS, doc_md=__doc__):

    @task
    def accounts() -> list[dict[str, Any]]:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        rows = PostgresHook("warehouse").get_records("SELECT id, name, segment FROM accounts ORDER BY id")
        return [{"account": number, "topic": name, "audience": segment} for number, name, segment in rows]

    briefs = CrewBatchOperator(
        task_id="briefs",
        inputs=accounts(),
        result_path="{{ params.results }}/{{ run_id }}",
        key="account",
        max_failed="5%",
        deferrable=True,
        retries=2,
    )

    @task(retries=3)
    def store(manifest: dict[str, Any]) -> None:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        with ObjectStoragePath(manifest["results"]).open() as file:
            lines = [json.loads(line) for line in file]
        PostgresHook("warehouse").insert_rows(
            table="briefs",
            rows=[(int(line["key"]), line["raw_output"]) for line in lines if line["status"] == "success"],
            target_fields=["account", "brief"],
            replace=True,
            replace_index=["account"],
        )

    store(briefs.output)
