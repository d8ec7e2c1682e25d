"""The three ways to run a crew that the README and the documentation show, run by Airflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from clients import TOKEN
from pages import DAG_PAGES, block, wherever

from airflow_provider_crew.service.models import Completed

DAG = """
from airflow.providers.common.compat.sdk import DAG, task

with DAG("shown", schedule=None, params={{"topic": "electric ferries"}}):
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
@pytest.mark.parametrize("page", DAG_PAGES)
def test_each_way_runs(service, tmp_path, page):
    shown = [
        block(page, "python", "import CrewRunOperator"),
        block(page, "python", "CrewExecutionSensor("),
        block(page, "python", "@task.crew"),
    ]
    (tmp_path / "shown.py").write_text(DAG.format(blocks=textwrap.indent("\n".join(shown), "    ")))
    airflow(tmp_path, "db", "migrate")

    said = airflow(tmp_path, "dags", "test", "shown", AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    topics = {kickoff.inputs["topic"] for kickoff in service.kickoffs}
    assert (topics, len(service.kickoffs)) == ({"electric ferries", "ferries", "lighthouses"}, 3)
    for kickoff in service.kickoffs:
        assert f"Execution {kickoff.kickoff_id}: completed" in said
    assert TOKEN not in said


@pytest.mark.parametrize("shown", wherever("python", '{"kickoff_id"'))
def test_the_result_has_the_keys_that_are_shown(shown):
    keys = Completed(status="completed", kickoff_id="id", output="").result()

    assert all(f'"{key}"' in shown for key in keys)
