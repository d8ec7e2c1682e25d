"""Tasks of real crews, each in a DAG of its own."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

BRIEFING = {"topic": "electric ferries", "audience": "harbour masters"}


def run(name: str, crew: str, inputs: dict[str, Any], *, deferrable: bool = True) -> None:
    with DAG(f"real_{name}", schedule=None):
        CrewRunOperator(
            task_id="run", crew_conn_id=f"crew_{crew}", inputs=inputs, deferrable=deferrable, poll_interval=1
        )


run("run", "briefing", BRIEFING)
run("run_sync", "briefing", BRIEFING, deferrable=False)
run("failing", "failing", {"topic": "ferries"})
run("reviewed", "reviewed", {"topic": "ferries"})
run("flow", "flow", {"topic": "ferries"})
