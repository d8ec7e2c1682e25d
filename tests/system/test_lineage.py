"""With the OpenLineage provider installed, tasks report which execution of which crew they were about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_runs import eventually

TASKS = {"lineage.kickoff", "lineage.sensor", "lineage.run"}


def completed(home: Path) -> dict[str, dict[str, Any]]:
    """Return the facets of each task that OpenLineage was told has completed, from the lines written whole."""
    lines = (home / "lineage.json").read_text().split("\n")[:-1]
    events = [event for event in map(json.loads, lines) if event["eventType"] == "COMPLETE"]
    return {event["job"]["name"]: event["run"]["facets"] for event in events if event["job"]["name"] in TASKS}


@pytest.mark.nightly
def test_openlineage_gets_the_execution_and_its_crew(start, crews, airflow):
    run = start("lineage")
    assert run.wait() == "success"

    # A task is a success to Airflow before it tells OpenLineage.
    facets = eventually(lambda: (found := completed(airflow.home)).keys() == TASKS and found)
    execution = run.xcom("kickoff")
    reported = {name: facet["externalQuery"] for name, facet in facets.items()}
    assert {name: (facet["externalQueryId"], facet["source"]) for name, facet in reported.items()} == {
        "lineage.kickoff": (execution, crews["default"].url),
        "lineage.sensor": (execution, crews["default"].url),
        "lineage.run": (run.xcom("run", "kickoff_id"), crews["default"].url),
    }
