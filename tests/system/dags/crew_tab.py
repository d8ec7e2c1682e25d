"""Tasks that leave what the test has put into the run, as tasks of a crew would, and one of a real crew."""

from __future__ import annotations

import time
from typing import Any

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, BaseOperator, task

from airflow_provider_crew.operators.crew import CrewRunOperator


class Told(BaseOperator):
    """A task of a crew, as the tab tells one: it has a field for the connection."""

    template_fields = ("crew_conn_id",)

    def __init__(self, *, then: str = "succeeds", crew_conn_id: str = "crew_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.crew_conn_id = crew_conn_id
        self.then = then

    def execute(self, context: Any) -> Any:
        ti = context["ti"]
        name = ti.task_id if ti.map_index < 0 else f"{ti.task_id}_{ti.map_index}"
        leaves = dict(context["dag_run"].conf[name])
        result = leaves.pop("return_value", None)
        for key, value in leaves.items():
            ti.xcom_push(key=key, value=value)
        if self.then == "fails":
            raise AirflowFailException("The crew has failed")
        if self.then == "stays":  # until the test marks it
            time.sleep(1800)
        return result


with DAG("crew_tab", schedule=None):
    for each in ("finished", "kicked_off", "hostile"):
        Told(task_id=each)
    Told(task_id="failed", then="fails")
    for each in ("running", "paused", "hostile_running", "batch", "hostile_batch"):
        Told(task_id=each, then="stays")
    Told.partial(task_id="mapped").expand(crew_conn_id=["one", "two"])
    CrewRunOperator(
        task_id="deferred",
        crew_conn_id="crew_slow",
        inputs={"topic": "ferries", "audience": "sailors"},
        deferrable=True,
    )

    @task
    def plain() -> str:
        return "no crew"

    plain()
