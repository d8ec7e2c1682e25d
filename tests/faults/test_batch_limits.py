"""A pilot and `max_tokens` of a batch whose worker is killed. The crew's own sum of tokens is the measure."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.airflow_runs import TOKEN
from tests.faults.rows import RUN
from tests.faults.scenes import TOPIC, Code, Scene
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")

ROWS, TOKENS = 40, 1000
USAGE = {"total_tokens": TOKENS}
WORKS = ScenarioTask(name="writing_task", seconds=2.0, output="Briefing: {topic}")
WORKING = Scenario(dialect="deployed", inputs=(), tasks=(WORKS,), usage=USAGE)
FAILING = WORKING.model_copy(update={"tasks": (WORKS.model_copy(update={"error": "out of credit"}),)})
KILLED_ONCE = {"pre_execute": Code("lambda _: dies_at('append', after=True)"), "retries": 2}


@pytest.fixture(params=RUN)
def scene(airflow, database, dags, request):
    with LocalCrewService(WORKING, token=TOKEN) as crew:
        name = f"{request.node.originalname.removeprefix('test_')}_{request.param}"
        scene = Scene(airflow, database, crew, dags, name, request.param)
        scene.batch, scene.keeps_task_state = ROWS, True
        scene.connect()
        yield scene


def manifest_of(scene: Scene) -> Any:
    return json.loads((scene.results / "manifest.json").read_text())


def topics(scene: Scene) -> Counter[str]:
    return Counter(str(kickoff.inputs["topic"]) for kickoff in scene.crew.kickoffs)


def test_no_more_tokens_are_used_than_max_tokens(scene):
    scene.write_dag(KILLED_ONCE | {"max_tokens": 10 * TOKENS})
    scene.start(until="failed")
    assert scene.file.with_suffix(".killed").exists()
    assert len(scene.crew.kickoffs) * TOKENS == 10 * TOKENS == manifest_of(scene)["usage"]["total_tokens"]
    assert manifest_of(scene)["counts"] | {"success": 10, "not_started": 30} == manifest_of(scene)["counts"]

    scene.clear("failed")
    scene.wait_until_over()
    assert len(scene.crew.kickoffs) == 10, "clearing starts nothing before the limit is raised"

    scene.rewrite_dag(KILLED_ONCE | {"max_tokens": 2 * ROWS * TOKENS})
    scene.clear("failed")
    scene.wait_for("success")
    assert set(topics(scene).values()) == {1}
    assert len(scene.crew.kickoffs) == ROWS
    assert scene.xcom()["usage"]["total_tokens"] == ROWS * TOKENS


def test_failed_pilot_costs_no_other_row(scene):
    scene.crew.scenario = FAILING
    pilot = KILLED_ONCE | {"pilot": 8, "max_failed": 0}
    scene.write_dag(pilot)
    scene.start(until="failed")
    assert scene.file.with_suffix(".killed").exists()
    before = len(scene.crew.kickoffs)
    assert topics(scene).keys() <= {f"{TOPIC} {number}" for number in range(8)}

    scene.crew.scenario = WORKING
    changed = Code(f"[{{'topic': f'other {{number}}'}} for number in range({ROWS})]")
    scene.rewrite_dag(pilot | {"inputs": changed})
    scene.clear("failed")
    scene.wait_for("success")
    others = [str(kickoff.inputs["topic"]) for kickoff in scene.crew.kickoffs[before:]]
    assert len(others) == len(set(others)) == ROWS
    assert {*others[:8]} == {f"other {number}" for number in range(8)}
    assert scene.xcom()["usage"]["total_tokens"] == len(scene.crew.kickoffs) * TOKENS
    assert scene.xcom()["removed"] == ROWS
