"""The crew talks in another way than the documentation says."""

from __future__ import annotations

from typing import Any

from rows import LONG, RUN, Ends, row

from airflow_provider_crew.local import Scenario

DONE = Ends("success", ("Execution {id}: running", "Execution {id}: completed"), "the result", "has completed")


def crew(**habits: Any) -> Scenario:
    return LONG.model_copy(update=habits)


def talk(scene) -> None:
    scene.start()
    execution = scene.execution()
    progress = "running" if scene.crew.scenario.dialect == "deployed" else "task 2 of 2, writing_task"
    scene.tells(f"Execution {execution}: {progress}")
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output"] == "Briefing: ferries"


@row(
    "The crew talks in the dialect of deployed crews",
    DONE,
    ways=RUN,
    scenario=crew(dialect="deployed", unknown_execution="state"),
)
def test_dialect_deployed(scene):
    talk(scene)


DOCUMENTED = Ends(
    "success", ("task 2 of 2, writing_task", "Execution {id}: completed"), "the result", "has completed"
)


@row(
    "The crew tells the status at /ID/status, and only there",
    DOCUMENTED,
    ways=RUN,
    scenario=crew(status_paths="id_first"),
)
def test_dialect_id_first(scene):
    talk(scene)


@row(
    "The crew tells the status at /ID/status, and says of every other path that there is no such execution",
    DOCUMENTED,
    ways=RUN,
    scenario=crew(status_paths="id_first", unknown_path="error_body"),
)
def test_dialect_id_first_with_error_body(scene):
    talk(scene)


@row(
    "The crew tells the status at /status/ID, and only there, in the dialect of deployed crews",
    DONE,
    scenario=crew(dialect="deployed", status_paths="status_first"),
)
def test_dialect_deployed_status_first(scene):
    talk(scene)


@row(
    "The crew tells the status at /ID/status, and only there, in the dialect of deployed crews",
    DONE,
    scenario=crew(dialect="deployed", status_paths="id_first"),
)
def test_dialect_deployed_id_first(scene):
    talk(scene)
