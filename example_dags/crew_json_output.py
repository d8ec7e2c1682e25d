"""
Use a crew's JSON output in the next task.

If the crew's output is JSON, `output_json` contains the parsed value. For any other output,
`headlines` fails. To check the output before the next task starts, use `output_type`, as in
`crew_production`.

Needs the connection `crew_json`, to a crew that returns JSON. To run one on your machine:
`python -m airflow_provider_crew.local --scenario example_dags/crew_json_output.toml`

Costs one execution.
"""

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_json_output",
    schedule=None,
    tags=["crew"],
    params={"topic": "data privacy", "audience": "lawyers"},
    doc_md=__doc__,
):
    report = CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        crew_conn_id="crew_json",
        deferrable=True,
    )

    @task
    def headlines(result: dict[str, Any]) -> list[str]:
        report = result["output_json"]
        return [headline["text"] for headline in report["headlines"] if headline["urgent"]]

    headlines(report.output)
