"""The hook inside tasks, run by Airflow itself from a DAG file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOKEN

DAG_FILE = """
import json
import os
from pathlib import Path

from airflow.providers.common.compat.sdk import dag, task
from airflow_provider_crew.hooks.crew import CrewHook


@dag(schedule=None)
def crew_hook():
    @task
    def start():
        return CrewHook().kickoff({"topic": "harbours", "audience": "sailors"})

    @task
    async def finish(kickoff_id):
        completed = await CrewHook().wait_async(kickoff_id, poll_interval=0.1)
        return completed.result()

    @task
    def keep(result):
        Path(os.environ["RESULT"]).write_text(json.dumps(result))

    keep(finish(start()))


crew_hook()
"""


def airflow(home: Path, *arguments: str, **environment: str) -> str:
    """Run Airflow's command line in a home of its own and return all that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"AIRFLOW_HOME": str(home)} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_a_crew_runs_from_tasks_sync_and_async(service, tmp_path):
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "crew_hook.py").write_text(DAG_FILE)
    kept = tmp_path / "result.json"
    airflow(tmp_path, "db", "migrate")

    said = airflow(
        tmp_path, "dags", "test", "crew_hook", AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri, RESULT=str(kept)
    )

    result = json.loads(kept.read_text())
    assert [kickoff.kickoff_id for kickoff in service.kickoffs] == [result["kickoff_id"]]
    assert result["output"].startswith("Briefing: harbours")
    assert f"Execution {result['kickoff_id']}: completed" in said
    assert TOKEN not in said
