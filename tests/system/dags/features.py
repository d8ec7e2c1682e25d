"""What Airflow offers to every operator, used with those for crews."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor


def use_everything(waits: dict[str, Any]) -> None:
    @task
    def topics() -> list[str]:
        return ["one", "two", "three"]

    @task
    def shout(topic: str) -> str:
        return topic.upper()

    @task
    def audience() -> dict[str, Any]:
        return {"who": "sailors"}

    shouted = shout.expand(topic=topics())
    asked: Any = audience()

    # XComArgs inside the inputs, of a mapped task and of a key; a native template; all deferred.
    CrewRunOperator(
        task_id="arguments",
        inputs={"topic": shouted, "audience": asked["who"], "number": "{{ params.number }}"},
        **waits,
    )

    # Mapped kickoffs, and a mapped sensor over their ids.
    kickoffs = CrewKickoffOperator.partial(task_id="kickoffs", crew_conn_id="crew_brief").expand(
        inputs=topics().map(lambda topic: {"topic": topic, "audience": "{{ params.topic }}"})
    )
    CrewExecutionSensor.partial(
        task_id="sensors", crew_conn_id="crew_brief", deferrable=waits["deferrable"], poke_interval=1
    ).expand(kickoff_id=kickoffs.output)

    CrewRunOperator(
        task_id="failing",
        inputs={"topic": "t", "audience": "a"},
        retries=0,
        **waits | {"crew_conn_id": "crew_failing"},
    )

    CrewKickoffOperator(task_id="rejected", inputs={}, crew_conn_id="crew_refused", validate_inputs=False)

    @task.crew(**waits)  # type: ignore[untyped-decorator]
    def decorated(topic: str, params: Any) -> dict[str, Any]:
        return {"topic": topic, "audience": "{{ not rendered }}", "number": params["number"]}

    decorated.expand(topic=topics())

    @task
    def after(results: Any) -> list[str]:
        return [result["output"] for result in results]

    after(decorated.override(task_id="decorated_again").expand(topic=["x", "y"]))


for name, deferrable in {"features_deferred": True, "features_sync": False}.items():
    with DAG(
        name,
        schedule=None,
        max_active_tasks=100,
        params={"topic": "param topic", "number": 7},
        render_template_as_native_obj=True,
    ):
        use_everything({"deferrable": deferrable, "crew_conn_id": "crew_brief", "poll_interval": 1})
