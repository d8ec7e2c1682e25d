"""Expected outcome of a batch or a mapped task: each row has a result of its own."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.faults.rows import Ends
from tests.faults.scenes import TOPIC, Scene


def lines_of(scene: Scene, name: str = "results.jsonl") -> list[dict[str, Any]]:
    """Return the lines of a result file."""
    return [json.loads(line) for line in (scene.results / name).read_text().splitlines()]


def check_batch(scene: Scene, ends: Ends, uncertain: int) -> None:
    """Compare the outcome of a batch with the expected one."""
    task, lines, manifest = scene.task, lines_of(scene), scene.xcom()
    assert (task["state"], task["try_number"]) == (ends.state, ends.tries)
    started = {kickoff.kickoff_id: str(kickoff.inputs["topic"]) for kickoff in scene.crew.kickoffs}
    assert len(started) == ends.kickoffs, sorted(started.values())
    counts = Counter(line["status"] for line in lines)
    assert counts == Counter({"success": scene.batch - uncertain, "uncertain": uncertain})
    assert len({line["key"] for line in lines}) == scene.batch
    for line in lines:
        if line["status"] == "success":
            assert started[line["kickoff_id"]] == line["key"]
            assert line["output"] == f"Briefing: {line['key']}"
    assert manifest["counts"] == {status: counts[status] for status in manifest["counts"]}
    reports = scene.log().count(", uncertain: ")
    named = {line["kickoff_id"] for line in (*lines, *lines_of(scene, "removed.jsonl"))}
    unnamed = started.keys() - named
    assert len(unnamed) <= reports, f"paid for, and named nowhere: {unnamed}"


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
