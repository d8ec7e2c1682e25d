"""The hook inside tasks: the example DAG, run by Airflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOKEN

EXAMPLES = Path(__file__).parents[2] / "example_dags"


def airflow(home: Path, *arguments: str, **environment: str) -> str:
    """Run Airflow's command line in a home of its own and return all that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES)} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_a_crew_runs_from_tasks_sync_and_async(service, tmp_path):
    airflow(tmp_path, "db", "migrate")

    said = airflow(
        tmp_path,
        "dags",
        "test",
        "crew_from_python",
        "--conf",
        '{"topic": "harbours"}',
        AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri,
    )

    (kickoff,) = service.kickoffs
    assert kickoff.inputs == {"topic": "harbours", "audience": "harbour masters"}
    assert f"Execution {kickoff.kickoff_id}: completed" in said
    assert "What changed: harbours moved" in said
    assert TOKEN not in said
