"""A crew run from Python tasks, through the hook."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task


@dag(schedule=None, tags=["crew"], params={"topic": "electric ferries", "audience": "harbour masters"})
def crew_from_python() -> None:
    """
    ### A crew run from Python tasks.

    `start` kicks the crew off and returns the kickoff id, so the execution is known before anything waits for it.
    It has no retries: a second try would start, and pay for, a second execution. `finish` may be retried, since it
    only waits. It waits in the worker.

    Needs the connection `crew_default`. To try it on your own machine: `python -m airflow_provider_crew.local`
    """

    @task(retries=0)
    def start(params: dict[str, Any]) -> str:
        from airflow_provider_crew.hooks.crew import CrewHook

        return CrewHook().kickoff({"topic": params["topic"], "audience": params["audience"]})

    @task(retries=2, multiple_outputs=False)
    def finish(kickoff_id: str) -> dict[str, Any]:
        from airflow_provider_crew.hooks.crew import CrewHook

        return CrewHook().wait(kickoff_id).result()

    @task
    def publish(result: dict[str, Any]) -> None:
        print(result["output"])  # noqa: T201 - the task's log is where it is published

    publish(finish(start()))


crew_from_python()
