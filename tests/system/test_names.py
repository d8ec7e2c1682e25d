"""A mapped task is named by its map_index_template, also while it is deferred."""

from __future__ import annotations

import pytest

from tests.airflow_runs import eventually
from tests.supported import has

pytestmark = pytest.mark.timeout(300)

NAMES = ["about ferries", "about tides"]


@pytest.fixture(scope="module")
def run(start):
    return start("names")


def names(run, task_id):
    return [ti["rendered_map_index"] for ti in sorted(run.tasks(task_id), key=lambda ti: ti["map_index"])]


def test_name_from_a_function_survives_the_deferral(run, crews):
    eventually(lambda: [ti["state"] for ti in run.tasks("report")] == ["deferred", "deferred"], 120)
    shown = names(run, "report")
    for index in range(2):
        crews["slow"].finish(run.xcom("report", "kickoff_id", index))

    assert run.wait() == "success"
    assert shown == NAMES if has("Names of mapped tasks") else not set(shown) & set(NAMES)
    assert names(run, "report") == NAMES
    assert {ti["try_number"] for ti in run.tasks("report")} == {1}


@pytest.mark.parametrize("task_id", ["unnamed_deferred", "unnamed_sync"])
def test_unrenderable_template_fails_nothing(run, task_id):
    run.wait()

    (task,) = run.tasks(task_id)
    assert (task["state"], task["try_number"]) == ("success", 1)
    assert task["rendered_map_index"] in {None, "0"}
    lines = [event["event"] for event in run.events(task_id, map_index=0)]
    assert any("map_index_template" in line and "no_such_name" in line for line in lines)
