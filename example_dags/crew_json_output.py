"""Use a crew's JSON output in the next task."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.operators.crew import CrewRunOperator

PARAMS = {"topic": "electric ferries", "audience": "harbour masters", "crew": "crew_json"}


@dag(schedule=None, tags=["crew"], params=PARAMS)
def crew_json_output() -> None:
    """
    ### Use a crew's JSON output in the next task.

    If the crew's output is JSON, `output_json` holds the parsed value. Otherwise `headlines` fails.

    The connection `crew_json` points to a crew that returns JSON. To run one on your machine:
    `python -m airflow_provider_crew.local --scenario example_dags/crew_json_output.toml`
    """
    report = CrewRunOperator(
        task_id="report",
        inputs={"topic": "{{ params.topic }}", "audience": "{{ params.audience }}"},
        crew_conn_id="{{ params.crew }}",
        deferrable=True,
        poll_interval=2,
    )

    @task
    def headlines(result: dict[str, Any]) -> list[str]:
        report = result["output_json"]
        return [headline["text"] for headline in report["headlines"] if headline["urgent"]]

    headlines(report.output)


crew_json_output()
