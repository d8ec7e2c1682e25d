"""Mapped tasks with names, as users write them."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, get_current_context, task

with DAG("names", schedule=None, max_active_tasks=100):

    @task.crew(crew_conn_id="crew_slow", deferrable=True, poll_interval=1, map_index_template="{{ my_name }}")
    def report(topic: str) -> dict[str, Any]:
        context: Any = get_current_context()
        context["my_name"] = f"about {topic}"
        return {"topic": topic, "audience": "sailors"}

    report.expand(topic=["ferries", "tides"])
