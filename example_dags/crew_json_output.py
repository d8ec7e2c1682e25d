"""A crew's JSON output, used by the next task."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.operators.crew import CrewRunOperator

PARAMS = {"topic": "electric ferries", "audience": "harbour masters", "crew": "crew_default"}


@dag(schedule=None, tags=["crew"], params=PARAMS)
def crew_json_output() -> None:
    """
    ### A crew's JSON output, used by the next task.

    When the output of a crew is a JSON object or array, `output_json` holds it parsed; otherwise it is None. When
    the crew puts out prose, as the local service does by default, `headlines` takes its lines.
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
        found = result["output_json"]
        return found["headlines"] if found else [line for line in result["output"].splitlines() if ":" in line]

    headlines(report.output)


crew_json_output()
