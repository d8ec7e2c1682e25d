"""Run a crew from Python tasks with CrewHook."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task

PARAMS = {"topic": "electric ferries", "audience": "harbour masters", "crew": "crew_default"}


@dag(schedule=None, tags=["crew"], params=PARAMS)
def crew_from_python() -> None:
    """
    ### Run a crew from Python tasks.

    `start` starts an execution and returns its kickoff ID. It has no retries, because each would start another
    billed execution. `finish` waits for the execution in the worker, so it can be retried.

    Needs the connection `crew_default`. To try it on your machine: `python -m airflow_provider_crew.local`
    """

    @task(retries=0)
    def start(params: dict[str, Any]) -> str:
        from airflow_provider_crew.hooks.crew import CrewHook

        inputs = {"topic": params["topic"], "audience": params["audience"]}
        return CrewHook(params["crew"]).kickoff(inputs)

    @task(retries=2, multiple_outputs=False)
    def finish(kickoff_id: str, params: dict[str, Any]) -> dict[str, Any]:
        from airflow_provider_crew.hooks.crew import CrewHook

        return CrewHook(params["crew"]).wait(kickoff_id).result()

    @task
    def publish(result: dict[str, Any]) -> None:
        print(result["output"])  # noqa: T201 - the task log shows it

    publish(finish(start()))


crew_from_python()
