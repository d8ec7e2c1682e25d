"""Task loops, which need Airflow 3.4."""

from __future__ import annotations

from datetime import timedelta

from airflow import sdk

from airflow_provider_crew.operators.crew import CrewRunOperator


def write(*, deferrable: bool) -> None:
    @sdk.task_group
    def drafts() -> None:
        CrewRunOperator(
            task_id="write",
            crew_conn_id="crew_slow",
            inputs={"topic": "ferries, draft {{ loop.index }}", "audience": "sailors"},
            deferrable=deferrable,
            poll_interval=1,
            cancel_on_kill=True,
            retries=1,
            retry_delay=timedelta(seconds=4),
        )

    drafts.loop(max_iterations=3)  # type: ignore[attr-defined] # mypy sees Airflow 3.3


for name in ("deferred", "sync") if hasattr(sdk, "LoopDecision") else ():
    with sdk.DAG(f"loops_{name}", schedule=None):
        write(deferrable=name == "deferred")
