"""Expected outcome of a mapped task: the same for each instance, with a result of its own."""

from __future__ import annotations

from typing import Any

from tests.faults.rows import Ends
from tests.faults.scenes import TOPIC, Scene


def check_each(scene: Scene, ends: Ends) -> None:
    """Compare the outcome of each instance with the expected one."""
    kickoffs = scene.crew.kickoffs
    assert len(kickoffs) == ends.kickoffs
    assert len(scene.tasks) == scene.mapped
    odd = [
        (task["map_index"], task["state"], task["try_number"])
        for task in scene.tasks
        if task["state"] != ends.state or task["try_number"] != ends.tries
    ]
    assert not odd, odd
    sent: list[tuple[Any, str]] = [(kickoff.meta, kickoff.kickoff_id) for kickoff in kickoffs if kickoff.meta]
    own = {meta["airflow"]["map_index"]: kickoff_id for meta, kickoff_id in sent}
    assert sorted(own) == list(range(scene.mapped))
    for index, kickoff_id in own.items():
        result = scene.run.xcom(scene.task_id, map_index=index)
        assert (result["kickoff_id"], result["output"]) == (kickoff_id, f"Briefing: {TOPIC} {index}")
