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
