"""The crew differs from the API reference."""

from __future__ import annotations

from typing import Any

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.faults.rows import COMPLETED, LONG, RUN, SENSOR, Ends, row


def crew(**habits: Any) -> Scenario:
    return LONG.model_copy(update=habits)


def talk(scene) -> None:
    scene.start()
    agent = "Writer" if scene.crew.scenario.dialect == "deployed" else None
    scene.progress(unit="task", completed=1, total=2, current_task="writing_task", current_agent=agent)
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output"] == "Briefing: ferries"


@row(COMPLETED, ways=RUN, scenario=crew(dialect="deployed"))
def test_dialect_deployed(scene):
    """The crew uses the dialect of deployed crews."""
    talk(scene)


@row(COMPLETED, ways=RUN, scenario=crew(status_paths="id_first"))
def test_dialect_id_first(scene):
    """The status is only at `/ID/status`."""
    talk(scene)


@row(COMPLETED, ways=RUN, scenario=crew(dialect="deployed", kind="flow"))
def test_dialect_flow(scene):
    """A flow reports its steps without their number."""
    scene.start()
    scene.progress(unit="step", total=None, current_task="writing_task")
    scene.finish()


@row(
    Ends("failed", "only the kickoff ID", "failed"),
    ways=RUN,
    scenario=crew(
        dialect="deployed", tasks=(ScenarioTask(name="writing_task", error="running: it has not completed"),)
    ),
)
def test_dialect_reason_with_a_word_of_the_other(scene):
    """A crew fails with a reason that contains words of the other dialect."""
    scene.start()


@row(Ends("failed", "only the kickoff ID", "revoked"), ways=(*RUN, *SENSOR), scenario=crew(dialect="deployed"))
def test_dialect_revoked(scene):
    """An execution is revoked while a task waits for it."""
    scene.start()
    scene.looked()
    scene.crew.revoke(scene.execution())
