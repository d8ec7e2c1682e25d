"""What Airflow offers to every operator, used with those for crews."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, TaskGroup, Variable, task

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

QUICK: dict[str, Any] = {"deferrable": True, "crew_conn_id": "crew_json"}


def note(name: str) -> Any:
    def callback(context: Any) -> None:
        error = context.get("exception")
        Variable.set(f"{context['run_id']}_{name}", type(error).__name__ if error else "called")

    return callback


with DAG(
    "features",
    schedule=None,
    max_active_tasks=100,
    params={"topic": "param topic", "number": 7},
    render_template_as_native_obj=True,
):

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

    # XComArgs inside the inputs, of a mapped task and of a key; a native template; all deferred.
    CrewRunOperator(
        task_id="arguments",
        inputs={"topic": shouted, "audience": audience()["who"], "number": "{{ params.number }}"},
        **QUICK,
    )

    # Mapped kickoffs, and a mapped sensor over their ids.
    kickoffs = CrewKickoffOperator.partial(task_id="kickoffs", crew_conn_id="crew_json").expand(
        inputs=topics().map(lambda topic: {"topic": topic, "audience": "{{ params.topic }}"})
    )
    CrewExecutionSensor.partial(task_id="sensors", **QUICK).expand(kickoff_id=kickoffs.output)

    # A task group, an outlet, callbacks, and an execution that is over at the first look.
    with TaskGroup("group"):
        CrewRunOperator(
            task_id="in_group",
            inputs={"topic": "{{ params.topic }}", "audience": "sailors"},
            outlets=[Asset("crew://report")],
            on_success_callback=note("success"),
            **QUICK,
        )

    CrewRunOperator(
        task_id="called_back",
        inputs={"topic": "t", "audience": "a"},
        crew_conn_id="crew_failing",
        deferrable=True,
        poll_interval=1,
        retries=0,
        on_failure_callback=note("failure"),
    )

    # Nothing of what the service and its clients say is asked for, nor checked.
    CrewKickoffOperator(
        task_id="options",
        inputs={"topic": "t", "audience": "a", "extra": None},
        meta={"ticket": "{{ params.number }}"},
        task_webhook_url="https://hooks.example/{{ params.number }}",
        crew_webhook_url="https://hooks.example/end",
        validate_inputs=False,
        crew_conn_id="crew_json",
    )

    @task.crew(**QUICK)
    def decorated(topic: str, params: Any) -> dict[str, Any]:
        return {"topic": topic, "audience": "{{ not rendered }}", "number": params["number"]}

    decorated.expand(topic=topics())

    @task
    def after(results: Any) -> list[str]:
        return [result["output"] for result in results]

    after(decorated.override(task_id="decorated_again").expand(topic=["x", "y"]))
