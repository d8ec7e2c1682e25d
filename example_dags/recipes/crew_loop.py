"""
Write and judge in a loop, until the result is good enough.

Needs Airflow 3.4 and the connection `crew_default`.

Costs one execution for each iteration, at most three. If the crew fails, each retry starts and pays for
another.
"""

from typing import Any

from airflow.sdk import DAG, LoopDecision, task, task_group


@task_group
def briefing() -> None:
    @task.crew(deferrable=True, retries=2)
    def write(*, loop: Any) -> dict[str, str]:
        remark = loop.previous["remark"] if loop.index else ""
        return {"topic": f"office chairs. {remark}", "audience": "buyers"}

    @task
    def judge(result: dict[str, Any]) -> dict[str, str]:
        remark = "" if "prices" in result["output"] else "Add the prices."
        return {"output": result["output"], "remark": remark}

    judge(write())


def is_good_enough(*, loop: Any) -> LoopDecision:
    remark = loop.result["remark"]
    return LoopDecision(stop=not remark, reason=remark)


with DAG("crew_loop", schedule=None, tags=["crew"], doc_md=__doc__):

    @task
    def publish(*, ti: Any) -> str:
        judged = ti.xcom_pull(task_ids="briefing.judge")  # one for each iteration
        return f"Published: {judged[-1]['output']}"

    briefing.loop(max_iterations=3, until=is_good_enough) >> publish()
