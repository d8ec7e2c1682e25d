"""The crew returns an unusual output."""

from __future__ import annotations

from typing import Any

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED, LONG, RUN, Ends, row

MANY_TASKS = Scenario.model_validate(
    {
        "inputs": [{"name": "topic"}],
        "tasks": [
            {"name": f"task_{number}", "output": f"Chapter {number} on {{topic}}"} for number in range(1, 1000)
        ]
        + [{"name": "task_1000", "seconds": 3600, "output": "The end of {topic}"}],
    }
)
MEGABYTES = 20
LARGE = "Ferries cross. " * (MEGABYTES * 2**20 // 15)


def put_out(scene, body: dict[str, Any]) -> dict[str, Any]:
    """Let the crew complete with this answer, and return the result of the task."""
    scene.start()
    execution = scene.execution()
    scene.crew.set_status(execution, body)
    scene.crew.finish(execution)
    scene.wait_until_over()
    return dict(scene.xcom())


@row(COMPLETED, ways=RUN, scenario=MANY_TASKS)
def test_answer_of_many_tasks(scene):
    """A crew has 1,000 tasks."""
    scene.start()
    scene.progress(total=1000, current_task="task_1000")
    scene.finish()
    scene.wait_until_over()
    tasks = scene.xcom()["tasks"]
    assert len(tasks) == 1000
    assert tasks[998]["output"] == "Chapter 999 on ferries"


@row(COMPLETED, ways=(*RUN, "sensor deferred"), scenario=LONG.model_copy(update={"output": LARGE}))
def test_answer_of_20_mb(scene):
    """The output is 20 MB large."""
    scene.start()
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output"] == LARGE


@row(Ends("failed", "only the kickoff ID", "completed"), ways=(*RUN, "sensor deferred"), retries=2)
def test_answer_over_the_limit(scene):
    """The answer is larger than 64 MiB."""
    scene.start()
    scene.looked()
    scene.crew.faults.huge(65 * 2**20, on="status", times=10)
    scene.finish()


@row(COMPLETED, scenario=LONG.model_copy(update={"output": ""}))
def test_answer_empty(scene):
    """The output is empty."""
    scene.start()
    scene.finish()
    scene.wait_until_over()
    assert (scene.xcom()["output"], scene.xcom()["output_json"]) == ("", None)


@row(COMPLETED, ways=RUN, scenario=LONG.model_copy(update={"output": '{"on": ["{topic}", 7]}'}))
def test_answer_json(scene):
    """The output is JSON."""
    scene.start()
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output_json"] == {"on": ["ferries", 7]}


@row(COMPLETED, ways=RUN)
def test_answer_unstorable(scene):
    """The output contains NUL and a lone surrogate, which no database stores."""
    result = put_out(scene, {"status": "completed", "result": {"output": "a\0b\ud800c", "tasks": []}})
    assert result["output"] == "a\ufffdb\ufffdc"


@row(COMPLETED, ways=RUN)
def test_answer_nan(scene):
    """The output contains NaN and infinity, which JSON does not allow."""
    numbers = [float("nan"), float("inf"), -float("inf"), 1.5]
    result = put_out(scene, {"state": "SUCCESS", "result": "numbers", "result_json": {"numbers": numbers}})
    assert result["output_json"] == {"numbers": [None, None, None, 1.5]}


@row(COMPLETED, ways=RUN)
def test_answer_reserved_keys(scene):
    """The output contains keys that Airflow's serialization reserves."""
    reserved = {
        "__id__": 1,
        "__classname__": "os.system",
        "__version__": 1,
        "__data__": {},
        "__var": 2,
        "__type": "x",
    }
    result = put_out(
        scene, {"state": "SUCCESS", "result": "keys", "result_json": {"found": [reserved], **reserved}}
    )
    kept = {
        "__id___": 1,
        "__classname___": "os.system",
        "__version__": 1,
        "__data__": {},
        "__var_": 2,
        "__type": "x",
    }
    assert result["output_json"] == {"found": [kept], **kept}


@row(COMPLETED, ways=RUN)
def test_answer_nested(scene):
    """The output is JSON nested 60 levels deep."""
    result = put_out(scene, {"state": "SUCCESS", "result": "nested", "result_json": nested(60)})
    assert result["output_json"] == nested(60)


@row(COMPLETED, ways=RUN)
def test_answer_nested_too_deeply(scene):
    """The output is JSON nested 1,000 levels deep."""
    text = "[" * 1000 + "]" * 1000
    result = put_out(scene, {"status": "completed", "result": {"output": text, "tasks": []}})
    assert (result["output"], result["output_json"]) == (text, None)


def nested(levels: int) -> Any:
    value: Any = "the core"
    for _ in range(levels):
        value = {"in": value}
    return value
