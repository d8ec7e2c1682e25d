"""
Write a crew's structured output into a table, without duplicate rows.

Needs `apache-airflow-providers-postgres`, the connections `crew_json`, to a crew that returns this
JSON, and `warehouse`, and the table `headlines`.

Costs one execution. Retrying or clearing `store` costs nothing.
"""

from dataclasses import dataclass
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewRunOperator


@dataclass
class Headline:
    """One row."""

    text: str
    urgent: bool


@dataclass
class News:
    """Output of the crew, as JSON."""

    title: str
    headlines: list[Headline]


with DAG("crew_into_table", schedule=None, tags=["crew"], doc_md=__doc__):
    news = CrewRunOperator(
        task_id="news",
        inputs={"topic": "electricity prices", "audience": "traders"},
        crew_conn_id="crew_json",
        output_type=News,
        deferrable=True,
    )

    @task(retries=3)
    def store(result: dict[str, Any]) -> None:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        rows = [
            (result["kickoff_id"], number, headline["text"], headline["urgent"])
            for number, headline in enumerate(result["output_json"]["headlines"])
        ]
        PostgresHook("warehouse").insert_rows(
            table="headlines",
            rows=rows,
            target_fields=["kickoff_id", "number", "text", "urgent"],
            replace=True,
            replace_index=["kickoff_id", "number"],
        )

    store(news.output)
