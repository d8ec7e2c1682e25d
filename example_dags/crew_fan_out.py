"""
Run a crew for each item of a list, and summarize the results.

Deferred tasks hold no worker, so all of them would run at once. A pool that counts deferred tasks limits
them:

`airflow pools set crews 4 "Concurrent crews" --include-deferred`

`map_index_template` names the mapped tasks in the grid, when they end. If some of them fail, as one does
here, the summary contains the others.
"""

from typing import Any

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator

REPORTS = [
    {"topic": "harbours", "audience": "harbour masters"},
    {"topic": "lighthouses", "audience": "sailors"},
    {"topic": "sea monsters"},  # fails at no cost, because the crew requires an audience
]

with DAG("crew_fan_out", schedule=None, tags=["crew"], params={"reports": REPORTS}, doc_md=__doc__):

    @task
    def inputs_of_each(params: dict[str, Any]) -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = params["reports"]
        return reports

    @task(trigger_rule="all_done")
    def summary(results: list[dict[str, Any]]) -> list[str]:
        return [result["output"].splitlines()[0] for result in results]

    reports = CrewRunOperator.partial(
        task_id="report",
        map_index_template="about {{ task.inputs['topic'] }}",
        pool="crews",
        deferrable=True,
    ).expand(inputs=inputs_of_each())
    summary(reports.output)
