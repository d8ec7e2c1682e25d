"""What the README and the documentation show of DAGs, run by Airflow itself."""

from __future__ import annotations

import ast
import json
import re
import textwrap

import pytest

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.clients import TOKEN
from tests.integration.pages import DAGS, OPERATORS, README, block, blocks, wherever
from tests.integration.played import python
from tests.supported import AIRFLOW, has

DAG = """
from airflow.providers.common.compat.sdk import DAG, task

with DAG("shown", schedule=None, params={{"topic": "electric ferries"}}):
{blocks}
    brief("lighthouses")
"""

TOPICS = {
    README: {"ferries"},
    DAGS: {"electric ferries"},
    OPERATORS: {"electric ferries", "ferries", "lighthouses"},
}
WAYS = r" (?:CrewRunOperator|CrewExecutionSensor)\(|@task\.crew"

REPORT = '{"title": "Ferries", "headlines": ["They cross"]}'

# Says of each file, alone in the dags folder, what Airflow finds in it, and how a run of that ends.
PLAY = """
import json, os, sys
from pathlib import Path
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # up to Airflow 3.1
    from airflow.models.dagbag import DagBag

for number, shown in enumerate(json.load(sys.stdin)):
    file = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"], f"shown_{number}.py")
    file.write_text(shown)
    found = DagBag()
    ends = {dag_id: dag.test().state for dag_id, dag in found.dags.items()}
    print("", json.dumps({"errors": found.import_errors, "ends": ends}), sep="\\n", flush=True)
    file.unlink()
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


def files_of(page: str) -> list[str]:
    """Return files for the dags folder: a page's blocks as they stand, or in a DAG where they are parts of one."""
    if page != OPERATORS:
        return blocks(page, "python")
    shown = [
        block(page, "python", "import CrewRunOperator"),
        block(page, "python", "CrewExecutionSensor("),
        block(page, "python", "@task.crew"),
    ]
    return [DAG.format(blocks=textwrap.indent("\n".join(shown), "    "))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [README, DAGS, OPERATORS])
def test_each_way_runs(service, home, page):
    files = files_of(page)

    said = python(home, "-c", PLAY, told=json.dumps(files), AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    played = [json.loads(line) for line in re.findall(r'^\{"errors": .*$', said, re.MULTILINE)]
    for shown, each in zip(files, played, strict=True):
        assert (each["errors"], list(each["ends"].values())) == ({}, ["success"]), shown
    assert len({dag_id for each in played for dag_id in each["ends"]}) == len(files), "they may lie in one folder"
    assert {kickoff.inputs["topic"] for kickoff in service.kickoffs} == TOPICS[page]
    assert len(service.kickoffs) == len(re.findall(WAYS, "".join(files)))
    for kickoff in service.kickoffs:
        assert f"Execution {kickoff.kickoff_id}: completed" in said
    assert (TOKEN not in said) == has("Tokens stay out of what `airflow dags test` prints")


@pytest.mark.timeout(600)
def test_results_are_read_and_passed_on_as_shown(service, home):
    files = [block("docs/results.md", "python", name) for name in ("read_a_result", "name_each_run")]

    said = python(home, "-c", PLAY, told=json.dumps(files), AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    played = [json.loads(line) for line in re.findall(r'^\{"errors": .*$', said, re.MULTILINE)]
    assert [(each["errors"], list(each["ends"].values())) for each in played] == [({}, ["success"])] * 2
    report, summary, *mapped = [kickoff.inputs["topic"] for kickoff in service.kickoffs]
    assert (report, summary.splitlines()[0]) == ("ferries", "Briefing: ferries")
    assert sorted(mapped) == ["ferries", "tides"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shown", wherever("python", "output_type=Report"))
def test_a_typed_result_is_read_as_shown(service, home, shown):
    service.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", output=f"So:\n```json\n{REPORT}\n```"),))

    said = python(home, "-c", PLAY, told=json.dumps([shown]), AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    assert re.findall(r'^\{"errors": .*$', said, re.MULTILINE) == [
        '{"errors": {}, "ends": {"typed_report": "success"}}'
    ]
    assert "Ferries: They cross" in said


@pytest.mark.skipif((3,) <= AIRFLOW < (3, 3), reason="there dag.test() tells a callback of no exception")
@pytest.mark.timeout(600)
def test_a_callback_is_told_of_a_failure_as_shown(service, home):
    service.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", error="The writer ran out of credit"),))
    shown = block("docs/monitoring.md", "python", "report_that_tells")

    said = python(home, "-c", PLAY, told=json.dumps([shown]), AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    assert '{"errors": {}, "ends": {"report_that_tells": "failed"}}' in said.splitlines()
    (taken,) = service.kickoffs
    assert re.search(
        rf"^Execution {taken.kickoff_id} failed.*\n{re.escape(f'Cost: {Cost.ENDED.sentence}')}\nNext: ",
        said,
        re.MULTILINE,
    )


@pytest.mark.timeout(600)
def test_what_is_migrated_runs_before_and_after(service, home):
    http_before, http_after, requests_before, requests_after = blocks("docs/migrating.md", "python")
    runs = {"before": [http_before, requests_before, "brief()"], "after": [http_after, requests_after, "brief()"]}
    files = [
        MIGRATED.format(name=name, url=service.url, token=TOKEN, blocks=textwrap.indent("\n".join(code), "    "))
        for name, code in runs.items()
    ]
    http = {"conn_type": "http", "host": service.url, "extra": {"Authorization": f"Bearer {TOKEN}"}}
    connections = {
        "AIRFLOW_CONN_CREW_HTTP": json.dumps(http),
        "AIRFLOW_CONN_CREW_DEFAULT": service.connection_uri,
    }

    said = python(home, "-c", PLAY, told=json.dumps(files), **connections)

    played = [json.loads(line) for line in re.findall(r'^\{"errors": .*$', said, re.MULTILINE)]
    assert [(each["errors"], each["ends"]) for each in played] == [({}, {name: "success"}) for name in runs]
    assert [kickoff.inputs for kickoff in service.kickoffs] == [{"topic": "ferries", "audience": "sailors"}] * 4


@pytest.mark.parametrize("shown", wherever("python", '{"kickoff_id"'))
def test_the_result_has_the_keys_that_are_shown(shown):
    keys = Completed(status="completed", kickoff_id="id", output="", execution_time=None).result()
    (told,) = re.findall(r'^\{"kickoff_id".*?\}$', shown, re.DOTALL | re.MULTILINE)

    assert set(ast.literal_eval(told.replace(", ...", ""))) == set(keys)
