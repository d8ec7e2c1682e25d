"""
Run a crew between two Python tasks.

The function `brief` returns the crew's inputs, and the task `brief` returns the crew's result. An
attempt that reattaches to an earlier execution does not call the function again.

Needs the connection `crew_default`.

Costs one execution.
"""

from typing import Any

from airflow.sdk import DAG, task

REQUESTS = [
    {"topic": "parking at the office", "votes": 12},
    {"topic": "working from abroad", "votes": 31},
]

with DAG("crew_between_tasks", schedule=None, tags=["crew"], params={"requests": REQUESTS}, doc_md=__doc__):

    @task
    def most_wanted(params: dict[str, Any]) -> str:
        wanted: dict[str, Any] = max(params["requests"], key=lambda request: request["votes"])
        return str(wanted["topic"])

    @task.crew(deferrable=True)
    def brief(topic: str) -> dict[str, Any]:
        return {"topic": topic, "audience": "heads of departments"}

    @task
    def publish(result: dict[str, Any]) -> str:
        return f"{result['tasks'][-1]['agent']}: {result['output'].splitlines()[0]}"

    publish(brief(most_wanted()))
