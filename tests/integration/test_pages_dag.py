"""What the README and the documentation show of DAGs, run by Airflow itself."""

from __future__ import annotations

import ast
import json
import re
import shutil
import textwrap
from contextlib import ExitStack

import pytest

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
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

# Tells what Airflow finds in each file, alone in the dags folder, and how a run of it ends.
PLAY = """
import json, os, sys
from pathlib import Path
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # up to Airflow 3.1
    from airflow.models.dagbag import DagBag

for number, (connection, shown) in enumerate(json.load(sys.stdin)):
    os.environ["AIRFLOW_CONN_CREW_DEFAULT"] = connection
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


class Played:
    """Runs of all files in one Airflow, which takes seconds to start, and the service of each group."""

    def __init__(self, home):
        failing = Scenario(tasks=(ScenarioTask(name="writing_task", error="The writer ran out of credit"),))
        typed = Scenario(tasks=(ScenarioTask(name="writing_task", output=f"So:\n```json\n{REPORT}\n```"),))
        pages: dict[str, list[str]] = {page: files_of(page) for page in (README, DAGS, OPERATORS)}
        pages["results"] = [
            block("docs/results.md", "python", name) for name in ("read_a_result", "name_each_run")
        ]
        pages["typed"] = [str(each.values[0]) for each in wherever("python", "output_type=Report")]
        pages["failed"] = [block("docs/monitoring.md", "python", "report_that_tells")]
        pages["migrated"] = []
        self.files, self.services, self.ends = pages, {}, {}
        with ExitStack() as stack:
            for name in pages:
                scenario = {"typed": typed, "failed": failing}.get(name, Scenario()).without_waiting()
                self.services[name] = stack.enter_context(LocalCrewService(scenario, token=TOKEN))
            pages["migrated"] = migrated(self.services["migrated"].url)
            http = {
                "conn_type": "http",
                "host": self.services["migrated"].url,
                "extra": {"Authorization": f"Bearer {TOKEN}"},
            }
            told = [
                (self.services[name].connection_uri, shown) for name, files in pages.items() for shown in files
            ]
            self.said = python(home, "-c", PLAY, told=json.dumps(told), AIRFLOW_CONN_CREW_HTTP=json.dumps(http))
        lines = iter(re.findall(r'^\{"errors": .*$', self.said, re.MULTILINE))
        for name, files in pages.items():
            self.ends[name] = [json.loads(next(lines)) for _ in files]

    def topics(self, name):
        return [kickoff.inputs["topic"] for kickoff in self.services[name].kickoffs]


def migrated(url: str) -> list[str]:
    """Return the DAGs of the page about migrating, before and after."""
    http_before, http_after, requests_before, requests_after = blocks("docs/migrating.md", "python")
    runs = {"before": [http_before, requests_before, "brief()"], "after": [http_after, requests_after, "brief()"]}
    return [
        MIGRATED.format(name=name, url=url, token=TOKEN, blocks=textwrap.indent("\n".join(code), "    "))
        for name, code in runs.items()
    ]


@pytest.fixture(scope="module")
def played(database, tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    (home / "dags").mkdir()
    shutil.copy(database, home / "airflow.db")
    return Played(home)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [README, DAGS, OPERATORS])
def test_each_way_runs(played, page):
    files, ends, kickoffs = played.files[page], played.ends[page], played.services[page].kickoffs
    for shown, each in zip(files, ends, strict=True):
        assert (each["errors"], list(each["ends"].values())) == ({}, ["success"]), shown
    assert len({dag_id for each in ends for dag_id in each["ends"]}) == len(files), "they may lie in one folder"
    assert set(played.topics(page)) == TOPICS[page]
    assert len(kickoffs) == len(re.findall(WAYS, "".join(files)))
    for kickoff in kickoffs:
        assert f"Execution {kickoff.kickoff_id}: completed" in played.said


@pytest.mark.timeout(600)
def test_results_are_read_and_passed_on_as_shown(played):
    assert [(each["errors"], list(each["ends"].values())) for each in played.ends["results"]] == [
        ({}, ["success"])
    ] * 2
    report, summary, *mapped = played.topics("results")
    assert (report, summary.splitlines()[0]) == ("ferries", "Briefing: ferries")
    assert sorted(mapped) == ["ferries", "tides"]


@pytest.mark.timeout(600)
def test_a_typed_result_is_read_as_shown(played):
    assert {json.dumps(each) for each in played.ends["typed"]} == {
        '{"errors": {}, "ends": {"typed_report": "success"}}'
    }
    assert played.said.count("Ferries: They cross") >= len(played.files["typed"])


@pytest.mark.skipif((3,) <= AIRFLOW < (3, 3), reason="there dag.test() tells a callback of no exception")
@pytest.mark.timeout(600)
def test_a_callback_is_told_of_a_failure_as_shown(played):
    assert played.ends["failed"] == [{"errors": {}, "ends": {"report_that_tells": "failed"}}]
    (taken,) = played.services["failed"].kickoffs
    assert re.search(
        rf"^Execution {taken.kickoff_id} failed.*\n{re.escape(f'Cost: {Cost.ENDED.sentence}')}\nNext: ",
        played.said,
        re.MULTILINE,
    )


@pytest.mark.timeout(600)
def test_what_is_migrated_runs_before_and_after(played):
    assert [each["errors"] for each in played.ends["migrated"]] == [{}, {}]
    assert [each["ends"] for each in played.ends["migrated"]] == [{"before": "success"}, {"after": "success"}]
    kickoffs = played.services["migrated"].kickoffs
    assert [kickoff.inputs for kickoff in kickoffs] == [{"topic": "ferries", "audience": "sailors"}] * 4


@pytest.mark.timeout(600)
def test_token_is_not_in_the_output_of_a_test_run(played):
    # The page about migrating has DAGs with the token in their source.
    assert (TOKEN not in played.said) == has("Tokens stay out of what `airflow dags test` prints")


@pytest.mark.parametrize("shown", wherever("python", '{"kickoff_id"'))
def test_the_result_has_the_keys_that_are_shown(shown):
    keys = Completed(status="completed", kickoff_id="id", output="", execution_time=None).result()
    (told,) = re.findall(r'^\{"kickoff_id".*?\}$', shown, re.DOTALL | re.MULTILINE)

    assert set(ast.literal_eval(told.replace(", ...", ""))) == set(keys)
