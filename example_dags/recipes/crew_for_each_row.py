"""
Have a crew draft an answer to each open support ticket, and list the tickets whose crew failed.

Needs `apache-airflow-providers-postgres`, the connections `crew_default` and `warehouse`, the table
`tickets`, and the pool `crews`, which must count deferred tasks.

Costs one execution for each ticket.
"""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG("crew_for_each_row", schedule=None, tags=["crew"], doc_md=__doc__):
    tickets = SQLExecuteQueryOperator(
        task_id="tickets",
        conn_id="warehouse",
        sql="SELECT subject, customer FROM tickets WHERE is_open ORDER BY id",
    )

    @task
    def inputs_of_each(rows: list[tuple[str, str]]) -> list[dict[str, str]]:
        return [{"topic": subject, "audience": customer} for subject, customer in rows]

    @task(trigger_rule="all_done")
    def report_failures(all_inputs: list[dict[str, str]] | None, ti: Any = None) -> None:
        if all_inputs is None:
            raise AirflowFailException("The tickets could not be read.")
        failed = []
        for number, inputs in enumerate(all_inputs):
            if ti.xcom_pull(task_ids="draft", map_indexes=number) is None:
                kickoff_id = ti.xcom_pull(task_ids="draft", map_indexes=number, key="kickoff_id")
                failed.append(f"{inputs['topic']}: execution {kickoff_id or 'unknown, see its log'}")
        if failed:
            raise AirflowFailException("\n".join([f"{len(failed)} of {len(all_inputs)} failed.", *failed]))

    all_inputs = inputs_of_each(tickets.output)
    drafts = CrewRunOperator.partial(
        task_id="draft",
        map_index_template="{{ task.inputs['topic'] }}",
        pool="crews",
        deferrable=True,
    ).expand(inputs=all_inputs)
    drafts >> report_failures(all_inputs)
