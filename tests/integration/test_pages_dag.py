"""DAGs on the pages of the documentation, run by Airflow itself."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.integration.clients import TOKEN
from tests.integration.pages import (
    A_RESULT,
    MIGRATING,
    PAGES,
    QUICKSTART,
    README,
    RECIPES,
    ROOT,
    RUN_A_CREW,
    SHOWN_FILE,
    anywhere,
    blocks,
    is_dag,
    table,
    wherever,
)
from tests.integration.played import python
from tests.integration.receivers import chat
from tests.supported import AIRFLOW, has

pytestmark = pytest.mark.timeout(600)

TOPICS = {README: {"battery prices"}, RUN_A_CREW: {"electric ferries"}}
WAYS = r" (?:CrewRunOperator|CrewExecutionSensor)\(|@task\.crew"

REPORT = '{"title": "Ferries", "headlines": ["They cross"]}'
OUT_OF_CREDIT = Scenario(tasks=(ScenarioTask(name="writing_task", error="The writer ran out of credit"),))
# Scenarios of DAGs that need another crew than the default one.
SCENARIOS = {
    "crew_chat_alert": OUT_OF_CREDIT,
    "crew_page": OUT_OF_CREDIT,
    "typed_report": Scenario(tasks=(ScenarioTask(name="writing_task", output=f"So:\n```json\n{REPORT}\n```"),)),
}
FAILING = {"crew_chat_alert", "crew_page", "crew_explains_failure"}

# Prints the import errors of each file, alone in the dags folder, and how a run of its DAG ends. Then come tests.
PLAY = """
import gc, json, os, sys
gc.disable()
import pytest
from pathlib import Path
from airflow_provider_crew.client import timing
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # up to Airflow 3.1
    from airflow.models.dagbag import DagBag

timing.SHORTEST_INTERVAL = timing.LONGEST_INTERVAL = 0.1
timing.SHORTEST_DEFERRAL = timing.LONGEST_BACK_OFF = timing.TIME_TO_CLEAR = 0.0
for number, (connection, shown) in enumerate(json.load(sys.stdin)):
    os.environ["AIRFLOW_CONN_CREW_DEFAULT"] = connection
    file = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"], f"shown_{number}.py")
    file.write_text(shown)
    found = DagBag()
    ends = {dag_id: dag.test().state for dag_id, dag in found.dags.items()}
    print("", json.dumps({"errors": found.import_errors, "ends": ends}), sep="\\n", flush=True)
    file.unlink()
home = os.environ["AIRFLOW_HOME"]
os.rename(f"{home}/daily_report.py", f"{home}/dags/daily_report.py")
pytest.main(["-q", "-p", "no:unraisableexception", "-c", "/dev/null", "--rootdir", home, f"{home}/tests"])
"""

# The blocks of the page about migrating, as parts of one DAG.
MIGRATED = """
from airflow.sdk import DAG

with DAG("migrated", schedule=None):
{blocks}
"""


def files_of(page: str) -> list[str]:
    """Return a page's DAGs as they stand, as files for the dags folder. Before Airflow 3.3, none starts again."""
    recipes = [code for _, code in SHOWN_FILE.findall(PAGES[page])]
    files = [shown for shown in blocks(page, "python") if is_dag(shown) and shown not in recipes]
    if has("Retries of tasks"):
        return files
    return [re.sub(r"(CrewRunOperator\([^)]*\bretries=)\d", r"\g<1>0", shown) for shown in files]


BATCH = "docs/batch.md"
BATCH_FILES = "docs/batch-reference.md"
# The quickstart has a test of its own.
FILES = {page: files for page in PAGES if page not in {MIGRATING, QUICKSTART} and (files := files_of(page))}
if not has("Batches"):
    del FILES[BATCH]
# The file of a DAG, and those of the tests that pytest runs.
TESTED = {
    "daily_report.py": '"daily_report"',
    "tests/test_daily_report.py": "def test_d",
    "tests/test_outage.py": "crew_service.faults",
}
_, MIGRATION = blocks(MIGRATING, "python")
FILES[MIGRATING] = [MIGRATED.format(blocks=textwrap.indent(MIGRATION, "    "))]
FILES[RECIPES] = [(ROOT / "example_dags/recipes/crew_explains_failure.py").read_text()]
FILES["docs/alerts.md"].append((ROOT / "example_dags/recipes/crew_page.py").read_text())


@dataclass
class Played:
    """A run of one file: its local server, its import errors, and the final states of its DAGs."""

    file: str
    service: LocalCrewService
    errors: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[Any]:
        return [kickoff.inputs["topic"] for kickoff in self.service.kickoffs]


class Pages:
    """Runs of the files of some pages in one Airflow, which takes seconds to start."""

    def __init__(self, home, names):
        with ExitStack() as stack:
            self.messages, address = stack.enter_context(chat())
            self.events, pager = stack.enter_context(chat())
            connections = {
                "AIRFLOW_CONN_CREW_WEBHOOK": '{"conn_type": "generic", "password": "YOUR_SECRET"}',
                "AIRFLOW_CONN_CHAT": json.dumps({"conn_type": "http", "password": address}),
                "AIRFLOW_CONN_PAGERDUTY": json.dumps({"conn_type": "generic", "host": pager, "password": "KEY"}),
            }

            def serve(shown: str) -> LocalCrewService:
                named = (scenario for dag_id, scenario in SCENARIOS.items() if f'"{dag_id}"' in shown)
                scenario = next(named, Scenario()).without_waiting()
                return stack.enter_context(LocalCrewService(scenario, token=TOKEN))

            self.of = {page: [Played(shown, serve(shown)) for shown in FILES[page]] for page in names}
            all_of_them = [played for of_page in self.of.values() for played in of_page]
            self.bucket = home / "bucket"
            files = [
                (played.service.connection_uri, played.file.replace("s3://my-bucket", str(self.bucket)))
                for played in all_of_them
            ]
            for name, mark in TESTED.items():
                (home / name).parent.mkdir(exist_ok=True)
                (home / name).write_text(anywhere("python", mark))
            settings = {
                "PYTHONPATH": f"{home / 'dags'}{os.pathsep}{ROOT}",
                # Loading every plugin that is installed takes seconds.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            }
            self.said = python(home, "-c", PLAY, told=json.dumps(files), **connections, **settings)
        lines = re.findall(r'^\{"errors": .*$', self.said, re.MULTILINE)
        for played, line in zip(all_of_them, lines, strict=True):
            played.errors, played.ends = json.loads(line).values()

    def the(self, dag_id: str) -> Played:
        (found,) = (played for of_page in self.of.values() for played in of_page if dag_id in played.ends)
        return found


@pytest.fixture(scope="module")
def pages(request, database, tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    (home / "dags").mkdir()
    shutil.copy(database, home / "airflow.db")
    # On older Airflows, a run takes seconds, and one page is enough.
    chosen = [item.name for item in request.session.items if item.module is request.module]
    named = [page for page in FILES if f"{test_dags_of_a_page_run.__name__}[{page}]" in chosen]
    return Pages(home, named if len(named) == len(chosen) else FILES)


shown_by_dag_test = pytest.mark.skipif(AIRFLOW < (3, 3), reason="as dag.test() of the newest Airflow does it")


@pytest.mark.parametrize("page", FILES)
def test_dags_of_a_page_run(pages, page):
    assert TOKEN not in pages.said
    for played in pages.of[page]:
        (dag_id,) = played.ends
        assert (played.errors, played.ends[dag_id]) == ({}, "failed" if dag_id in FAILING else "success")
        if page in TOPICS:  # each way to run a crew once
            assert {*played.topics} <= TOPICS[page]
            assert len(played.topics) == len(re.findall(WAYS, played.file))


def test_results_are_read_and_passed_on_as_shown(pages):
    report, summary = pages.the("read_a_result").topics
    assert (report, summary.splitlines()[0]) == ("ferries", "Briefing: ferries")
    assert "Ferries: They cross" in pages.said  # of typed_report


@shown_by_dag_test
def test_chat_and_pager_receive_messages_as_shown(pages):
    # The callback of a DAG cannot read the tasks in dag.test().
    texts = [message["text"] for message in pages.messages]
    assert "Cost: " in next(text for text in texts if "crew_chat_alert: " in text)
    explanation = next(text for text in texts if "load_prices" in text)
    assert explanation.startswith(anywhere("text", "load_prices").removesuffix("…\n"))
    (event,) = pages.events
    assert (event["routing_key"], event["event_action"]) == ("KEY", "trigger")
    assert event["payload"]["summary"].startswith("[unknown] crew_page: ")


@pytest.mark.skipif(not has("Batches"), reason="a batch needs the task state store of Airflow 3.3")
def test_batch_writes_the_results_as_shown(pages):
    (path,) = pages.bucket.glob("briefs/*/manifest-*.json")
    manifest = json.loads(path.read_text())
    results = Path(manifest["results"])
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(line["key"] for line in lines) == ["12", "7"]
    files = {row[0].strip("`/") for row in table(BATCH_FILES, "Files")}
    found = {re.sub(r"-[^.]+", "-*", path.name) for path in results.parent.iterdir()}
    assert found == files
    assert Path(manifest["failed"]).read_text() == ""
    (keys,) = re.findall(r"^Each line of.*?\n\n(.*?)\n\n", PAGES[BATCH_FILES], re.DOTALL | re.MULTILINE)
    shown = {name for row in keys.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert shown == {*lines[0]}
    assert all(f"`{name}`" in PAGES[BATCH_FILES] for name in (*manifest, *manifest["counts"]))


def test_webhook_secret_is_sent_as_shown(pages):
    (request,) = (each for each in pages.the("crew_events").service.requests if str(each.operation) == "kickoff")
    assert request.json["webhooks"]["authentication"]["token"] == "YOUR_SECRET"


def test_migrated_tasks_send_the_same_inputs(pages):
    inputs = [kickoff.inputs for kickoff in pages.the("migrated").service.kickoffs]
    assert inputs == [{"topic": "ferries", "audience": "sailors"}]


@shown_by_dag_test
def test_pytest_files_as_shown_pass(pages):
    assert "3 passed" in pages.said


@pytest.mark.parametrize("shown", wherever("python", A_RESULT))
def test_the_result_has_the_keys_that_are_shown(shown):
    keys = Completed(status="completed", kickoff_id="id", output="", execution_time=None).result()
    (result,) = re.findall(r'^\{"kickoff_id".*?\}$', shown, re.DOTALL | re.MULTILINE)

    assert set(ast.literal_eval(result.replace(", ...", ""))) == {*keys}
