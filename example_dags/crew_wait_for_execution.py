"""Wait for an execution that has no task any more, by its kickoff id."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_provider_crew.sensors.crew import CrewExecutionSensor

with DAG(
    "crew_wait_for_execution",
    schedule=None,
    tags=["crew"],
    params={
        "kickoff_id": Param(type="string", description="The kickoff id, from the log of the task that kicked off"),
        "crew": Param("crew_default", type="string", description="The connection to the crew"),
    },
    doc_md="""
    ### Wait for an execution that has no task any more

    When its task ends early, an execution goes on and is paid for. This DAG waits for it and takes its result:
    trigger it with the kickoff id that the log of that task names.
    """,
):
    CrewExecutionSensor(
        task_id="result",
        kickoff_id="{{ params.kickoff_id }}",
        crew_conn_id="{{ params.crew }}",
        deferrable=True,
        retries=2,
    )
