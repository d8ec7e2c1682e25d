"""
Run a crew from Python tasks with CrewHook.

`start` starts an execution and returns its kickoff ID. `finish` waits for the execution in the worker,
so it can be retried. A hook keeps no kickoff record, so prefer an operator if one fits.

Needs the connection `crew_default`.

Costs one execution. `start` has no retries, because each would start and pay for another.
"""

from typing import Any

from airflow.sdk import DAG, task

with DAG(
    "crew_from_python",
    schedule=None,
    tags=["crew"],
    params={"topic": "energy prices", "audience": "buyers"},
    doc_md=__doc__,
):

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
        print(result["output"])

    publish(finish(start()))
