"""The three ways to run a crew that the README shows, run by Airflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from clients import TOKEN
from test_readme import block

from airflow_provider_crew.service.models import Completed

DAG = """
from airflow.providers.common.compat.sdk import DAG, task

with DAG("readme", schedule=None, params={{"topic": "electric ferries"}}):
{blocks}
    brief("lighthouses")
"""


def airflow(home: Path, *arguments: str, **environment: str) -> str:
    """Run Airflow's command line in a home of its own and return all that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(home)} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_each_way_runs(service, tmp_path):
    shown = [
        block("python", "import CrewRunOperator"),
        block("python", "CrewExecutionSensor("),
        block("python", "@task.crew"),
    ]
    (tmp_path / "readme.py").write_text(DAG.format(blocks=textwrap.indent("\n".join(shown), "    ")))
    airflow(tmp_path, "db", "migrate")

    said = airflow(tmp_path, "dags", "test", "readme", AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    topics = {kickoff.inputs["topic"] for kickoff in service.kickoffs}
    assert (topics, len(service.kickoffs)) == ({"electric ferries", "ferries", "lighthouses"}, 3)
    for kickoff in service.kickoffs:
        assert f"Execution {kickoff.kickoff_id}: completed" in said
    assert TOKEN not in said


def test_the_result_has_the_keys_that_are_shown():
    shown = block("python", '{"kickoff_id"')
    keys = Completed(status="completed", kickoff_id="id", output="").result()

    assert all(f'"{key}"' in shown for key in keys)
