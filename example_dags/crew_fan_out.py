"""One crew run for each entry of a list, and a summary at the end."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.operators.crew import CrewRunOperator

REPORTS = [
    {"topic": "harbours", "audience": "harbour masters"},
    {"topic": "lighthouses", "audience": "sailors"},
    {"topic": "sea monsters"},  # without an audience, so the crew rejects it, and nothing is billed
]


@dag(schedule=None, tags=["crew"], params={"reports": REPORTS})
def crew_fan_out() -> None:
    """
    ### One crew run for each entry of a list, and a summary at the end.

    Deferred tasks hold no worker, so without a limit all of these run at once. The limit is a pool, and it has to
    count deferred tasks:

    `airflow pools set crews 4 "Crew runs at a time" --include-deferred`

    `map_index_template` names the runs on the page of the task, and in its list of mapped tasks. It may use what a
    function has set in its context, as in a `@task`. If some of the runs fail, as one does here, the summary takes
    the results of the others.
    """

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
        poll_interval=2,
    ).expand(inputs=inputs_of_each())
    summary(reports.output)


crew_fan_out()
