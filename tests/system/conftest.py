"""A real Airflow with local crews beside it, once for all system tests that one process runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from airflow_provider_crew.local import LocalCrewService
from dev.distributed import STACKS
from dev.postgres import PostgresServer
from dev.stack import AirflowStack
from tests.airflow_runs import ROOT, SCENARIOS, TOKEN, Run, connection
from tests.supported import examples, recipes
from tests.system.servers import OtlpReceiver, StatsdServer, serving
from tests.system.traces import REFUSED_TOKEN, with_secrets
from tests.system.wheels import build

# A run of an example may name a crew although the example has no such parameter. Each has the retries that the
# documentation recommends: a busy Airflow may fail any task, and then the next attempt reattaches. The crew of
# crew_alert fails, so a retry would start another execution. Before Airflow 3.3, each would.
_POLICY = """\
import datetime

from airflow.sdk import DAG

from airflow_provider_crew.versions import HAS_STORE


def task_policy(task):
    arguments = getattr(task, "partial_kwargs", None) or vars(task)
    if task.dag_id.startswith("crew_") and "crew_conn_id" in task.template_fields:
        own = arguments.get("crew_conn_id", "crew_default")
        if "{{" not in own:
            arguments["crew_conn_id"] = "{{ (dag_run.conf or {}).get('crew', '%s') }}" % own
    retried = HAS_STORE and task.dag_id.startswith("crew_") and task.dag_id != "crew_alert"
    if retried and not arguments.get("retries"):
        arguments["retries"], arguments["retry_delay"] = 2, datetime.timedelta(seconds=1)
    if (task.dag_id, task.task_id) == ("retried", "report"):
        task.retries = 3
    if task.dag_id == "reattach_policy":
        task.on_success_callback = [_nothing]


# Each run of these is started by a test, not by its schedule.
def dag_policy(dag):
    if dag.is_paused_upon_creation:
        dag.is_paused_upon_creation, dag.timetable = False, DAG("unscheduled", schedule=None).timetable


def _nothing(context):
    pass
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    build(dist)
    return dist


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def crews() -> Iterator[dict[str, LocalCrewService]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(LocalCrewService(story, token=TOKEN, call_webhooks=name == "answering"))
            for name, story in SCENARIOS.items()
        }


@pytest.fixture(scope="session")
def statsd() -> Iterator[StatsdServer]:
    with serving(StatsdServer()) as server:
        yield server


@pytest.fixture(scope="session")
def collector() -> Iterator[OtlpReceiver]:
    with serving(OtlpReceiver()) as receiver:
        yield receiver


@pytest.fixture(scope="session")
def database() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def airflow(
    request: pytest.FixtureRequest,
    database: PostgresServer,
    crews: dict[str, LocalCrewService],
    statsd: StatsdServer,
    collector: OtlpReceiver,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AirflowStack]:
    executor = request.config.getoption("--executor")
    dags = tmp_path_factory.mktemp("dags")
    for path in [*examples(), *recipes(), *(ROOT / "tests/system/dags").glob("*.py")]:
        shutil.copy(path, dags)
    described = {name: connection(crew) for name, crew in crews.items()}
    described["refused"] = connection(crews["default"], password=REFUSED_TOKEN)
    connections = {f"AIRFLOW_CONN_CREW_{name.upper()}": json.dumps(each) for name, each in described.items()}
    home = tmp_path_factory.mktemp("airflow")
    (home / "config").mkdir()
    (home / "config/airflow_local_settings.py").write_text(_POLICY, encoding="utf-8")
    settings = {
        "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        # On a busy machine, some processes get no response within the usual five seconds.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        # The pages of Airflow itself are read once. Ours have a rhythm of their own.
        "AIRFLOW__API__AUTO_REFRESH_INTERVAL": "60",
        # No file changes, and no other comes: to parse all of them again and again takes the time of the tests.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "60",
    }
    # With SQLite, Airflow's processes block each other for 30 seconds and more if many runs begin at once.
    settings |= database.settings | statsd.settings | collector.settings
    with STACKS[executor](home, dags, connections | settings) as running:
        running.api.ensure_pool("crews", slots=10)
        yield running
    found = with_secrets(running, database)
    assert found == [], "after all that has run here, a token is in a log or in the database"


@pytest.fixture(scope="session")
def start(airflow: AirflowStack) -> Callable[..., Run]:
    return partial(Run.start, airflow)
