"""
Run a crew for each item of a list, and summarize the results.

Deferred tasks hold no worker slot, so without a limit all crews run at once. The pool limits them,
because it counts deferred tasks. When a mapped task ends, the grid shows its `map_index_template`.

One crew fails here, because it lacks an input. `summary` has the trigger rule `all_done`, so it
summarizes the others, and the DAG run succeeds.

Needs the connection `crew_default` and a pool:
`airflow pools set crews 4 "Concurrent crews" --include-deferred`

Costs one execution for each item, here two: the item that lacks an input fails before the kickoff.
"""

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator

REPORTS = [
    {"topic": "tax changes in Norway", "audience": "accountants"},
    {"topic": "tax changes in Portugal", "audience": "accountants"},
    {"topic": "tax changes in Utopia"},
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
