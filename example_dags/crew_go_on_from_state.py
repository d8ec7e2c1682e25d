"""A run of a flow that begins with the state of an earlier one."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG(
    "crew_go_on_from_state",
    schedule=None,
    tags=["crew"],
    params={
        "topic": "electric ferries",
        "audience": "harbour masters",
        "tone": "cheerful",
        "crew": "crew_default",
    },
    doc_md="""
    ### A run of a flow that begins with the state of an earlier one

    `draft` runs a flow. `revision` runs it again, as a new execution that you pay for, too. It begins with the
    state in which `draft` ended, and changes only what its own inputs name. The flow has to persist its state. A
    flow that does not know the id begins with its defaults, and says nothing.
    """,
):
    draft = CrewRunOperator(
        task_id="draft",
        inputs={
            "topic": "{{ params.topic }}",
            "audience": "{{ params.audience }}",
            "tone": "{{ params.tone }}",
        },
        crew_conn_id="{{ params.crew }}",
        deferrable=True,
        poll_interval=2,
    )
    revision = CrewRunOperator(
        task_id="revision",
        inputs={"topic": "{{ params.topic }}", "audience": "sailors"},
        restore_from_state_id="{{ ti.xcom_pull(task_ids='draft', key='kickoff_id') }}",
        crew_conn_id="{{ params.crew }}",
        deferrable=True,
        poll_interval=2,
    )
    draft >> revision
