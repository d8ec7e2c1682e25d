"""A crew's JSON output, used by the next task."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.operators.crew import CrewRunOperator

PARAMS = {"topic": "electric ferries", "audience": "harbour masters", "crew": "crew_json"}


@dag(schedule=None, tags=["crew"], params=PARAMS)
def crew_json_output() -> None:
    """
    ### A crew's JSON output, used by the next task.

    When the output of a crew is JSON, `output_json` holds it parsed; otherwise it is None, and `headlines` fails.

    The connection `crew_json` leads to a crew that puts out JSON. To have one on your own machine:
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
