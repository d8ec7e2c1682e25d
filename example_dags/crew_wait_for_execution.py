"""
Wait for an execution whose task has ended, by its kickoff ID.

If a task ends early, its execution continues and is billed. This DAG waits for it and returns its
result. It also waits for a crew that waits for a person. The API reports such an execution like one
that never existed, so with a wrong kickoff ID, the task waits until its timeout of 24 hours.

Needs the connection to the crew, and the kickoff ID from the log of that task.

Costs nothing more: it starts no execution.
"""

from airflow.sdk import DAG, Param

from airflow_provider_crew.sensors.crew import CrewExecutionSensor

with DAG(
    "crew_wait_for_execution",
    schedule=None,
    tags=["crew"],
    params={
        "kickoff_id": Param(type="string", description="Kickoff ID, from the log of the task that started it"),
        "crew": Param("crew_default", type="string", description="Connection to the crew"),
    },
    doc_md=__doc__,
) as dag:
    CrewExecutionSensor(
        task_id="result",
        kickoff_id="{{ params.kickoff_id }}",
        crew_conn_id="{{ params.crew }}",
        human_input=True,
        deferrable=True,
        retries=2,
    )
