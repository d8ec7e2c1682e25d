"""Run a crew between two Python tasks."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import dag, task


@dag(schedule=None, tags=["crew"], params={"topics": ["harbours", "electric ferries"]})
def crew_between_tasks() -> None:
    """
    ### Run a crew between two Python tasks.

    The function `brief` returns the crew's inputs, and the task `brief` returns the crew's result. An attempt that
    reattaches to an earlier execution does not call the function again.
    """

    @task
    def most_urgent(params: dict[str, Any]) -> str:
        topics: list[str] = params["topics"]
        return max(topics, key=len)

    @task.crew(deferrable=True, poll_interval=2)
    def brief(topic: str) -> dict[str, Any]:
        return {"topic": topic, "audience": "harbour masters"}

    @task
    def publish(result: dict[str, Any]) -> str:
        return f"{result['tasks'][-1]['agent']}: {result['output'].splitlines()[0]}"

    publish(brief(most_urgent()))


crew_between_tasks()
