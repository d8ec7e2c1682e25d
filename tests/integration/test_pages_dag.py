"""The three ways to run a crew that the README and the documentation show, run by Airflow itself."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from clients import TOKEN
from pages import DAG_PAGES, block, blocks, wherever
from supported import has

from airflow_provider_crew.service.models import Completed

DAG = """
from airflow.providers.common.compat.sdk import DAG, task

with DAG("shown", schedule=None, params={{"topic": "electric ferries"}}):
{blocks}
    brief("lighthouses")
"""

MIGRATED = """
import json
import time

import requests
from airflow.providers.common.compat.sdk import DAG, PokeReturnValue, task
from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

URL = "{url}"
TOKEN = "{token}"

with DAG("{name}", schedule=None):
{blocks}
"""


def airflow(home: Path, *arguments: str, **environment: str) -> str:
    """Run Airflow's command line in a home of its own and return all that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ
        | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags")}
        | environment,
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
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "shown.py").write_text(DAG.format(blocks=textwrap.indent("\n".join(shown), "    ")))
    airflow(tmp_path, "db", "migrate")

    said = airflow(tmp_path, "dags", "test", "shown", AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    topics = {kickoff.inputs["topic"] for kickoff in service.kickoffs}
    assert (topics, len(service.kickoffs)) == ({"electric ferries", "ferries", "lighthouses"}, 3)
    for kickoff in service.kickoffs:
        assert f"Execution {kickoff.kickoff_id}: completed" in said
    assert (TOKEN not in said) == has("Tokens stay out of what `airflow dags test` prints")


@pytest.mark.timeout(180)
def test_what_is_migrated_runs_before_and_after(service, tmp_path):
    http_before, http_after, requests_before, requests_after = blocks("docs/migrating.md", "python")
    runs = {"before": [http_before, requests_before, "brief()"], "after": [http_after, requests_after, "brief()"]}
    dags = tmp_path / "dags"
    dags.mkdir()
    for name, code in runs.items():
        (dags / f"{name}.py").write_text(
            MIGRATED.format(
                name=name, url=service.url, token=TOKEN, blocks=textwrap.indent("\n".join(code), "    ")
            )
        )
    airflow(tmp_path, "db", "migrate")
    http = {"conn_type": "http", "host": service.url, "extra": {"Authorization": f"Bearer {TOKEN}"}}
    connections = {
        "AIRFLOW_CONN_CREW_HTTP": json.dumps(http),
        "AIRFLOW_CONN_CREW_DEFAULT": service.connection_uri,
    }

    for name in runs:
        airflow(tmp_path, "dags", "test", name, **connections)

    assert [kickoff.inputs for kickoff in service.kickoffs] == [{"topic": "ferries", "audience": "sailors"}] * 4


@pytest.mark.parametrize("shown", wherever("python", '{"kickoff_id"'))
def test_the_result_has_the_keys_that_are_shown(shown):
    keys = Completed(status="completed", kickoff_id="id", output="").result()
    (told,) = re.findall(r'^\{"kickoff_id".*?\}$', shown, re.DOTALL | re.MULTILINE)

    assert set(ast.literal_eval(told.replace(", …", ""))) == set(keys)
