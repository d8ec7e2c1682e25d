"""With the OpenLineage provider installed, tasks report which execution of which crew they were about."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(180)


def test_the_execution_and_its_crew_are_reported(start, crews, airflow):
    run = start("lineage")
    assert run.wait() == "success"

    events = [json.loads(line) for line in (airflow.home / "lineage.json").read_text().splitlines()]
    reported = {
        event["job"]["name"]: event["run"]["facets"]["externalQuery"]
        for event in events
        if event["eventType"] == "COMPLETE" and "externalQuery" in event["run"]["facets"]
    }
    execution = run.xcom("kickoff")
    assert {name: (facet["externalQueryId"], facet["source"]) for name, facet in reported.items()} == {
        "lineage.kickoff": (execution, crews["default"].url),
        "lineage.sensor": (execution, crews["default"].url),
        "lineage.run": (run.xcom("run", "kickoff_id"), crews["default"].url),
    }


def test_nothing_of_openlineage_is_imported_with_the_operators():
    code = """
import sys
import airflow_provider_crew.decorators.crew
import airflow_provider_crew.sensors.crew
print("openlineage" in sys.modules, "airflow.providers.openlineage.extractors" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.split() == ["False", "False"]
