"""
Start a flow from the state of an earlier execution.

`draft` runs a flow, and `revision` runs it again. The second execution starts with the final state of
the first, except for its own inputs. The flow must persist its state. If it does not know the kickoff
ID, it starts with its defaults, without an error.

Needs the connection `crew_flow`, to such a flow. To run one on your machine:
`python -m airflow_provider_crew.local --scenario example_dags/crew_restore_flow_state.toml`

Costs two executions.
"""

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_restore_flow_state",
    schedule=None,
    tags=["crew"],
    params={"topic": "the spring collection", "audience": "journalists", "tone": "cheerful"},
    doc_md=__doc__,
):
    draft = CrewRunOperator(
        task_id="draft",
        inputs={
            "topic": "{{ params.topic }}",
            "audience": "{{ params.audience }}",
            "tone": "{{ params.tone }}",
        },
        crew_conn_id="crew_flow",
        deferrable=True,
    )
    revision = CrewRunOperator(
        task_id="revision",
        inputs={"topic": "{{ params.topic }}", "audience": "customers"},
        restore_from_state_id="{{ ti.xcom_pull(task_ids='draft', key='kickoff_id') }}",
        crew_conn_id="crew_flow",
        deferrable=True,
    )
    draft >> revision
