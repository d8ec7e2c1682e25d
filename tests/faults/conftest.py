"""One Airflow on PostgreSQL for all rows, with LocalExecutor or two Celery workers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.distributed import STACKS
from dev.postgres import PostgresServer
from dev.stack import AirflowStack
from tests.faults.rows import Row
from tests.faults.stage import Stage
from tests.supported import AIRFLOW

_SETTINGS = {
    "AIRFLOW__CORE__PARALLELISM": "32",
    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "64",
    # Airflow notices a lost worker soon, not after five minutes. On 3.4, a cleared task runs for another 125
    # seconds, and a scheduler that considered it lost would crash.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30" if AIRFLOW < (3, 4) else "150",
    # On a busy machine, some processes get no response within the usual five seconds.
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
    # Airflow's API server authenticates requests on its event loop, and blocks while that waits for a database:
    # with the default of 15 connections and hundreds of tasks, for a minute.
    "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_SIZE": "40",
    # Each row has its own DAG file, and waits for Airflow to read a change.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--executions", type=int, default=20, help="number of executions under random faults")
    parser.addoption(
        "--keep-task-state", action="store_true", help="tick that box when clearing a task (Airflow 3.4)"
    )
    parser.addoption("--seed", type=int, help="repeat a sequence of random faults")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that harm Airflow itself last. Tests of other folders may be among them."""
    here = {None, config.getoption("--executor")}
    elsewhere = [item for item in items if (row := row_of(item)) and row.executor not in here]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = sorted((item for item in items if item not in elsewhere), key=harms_airflow)


def harms_airflow(item: pytest.Item) -> bool:
    row = row_of(item)
    return bool(row.harm if row else item.get_closest_marker("harms_airflow"))


def row_of(item: pytest.Item) -> Row | None:
    spec = getattr(item, "callspec", None)
    row = spec.params.get("row") if spec else None
    return row if isinstance(row, Row) else None


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed") or secrets.randbelow(10**6))


@pytest.fixture(scope="session")
def database() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def dags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dags")


@pytest.fixture(scope="session")
def airflow(
    request: pytest.FixtureRequest, database: PostgresServer, dags: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    stack = STACKS[request.config.getoption("--executor")]
    settings = database.settings | _SETTINGS
    with stack(tmp_path_factory.mktemp("airflow"), dags, settings) as running:
        yield running


@pytest.fixture(scope="session")
def stage(
    request: pytest.FixtureRequest, airflow: AirflowStack, database: PostgresServer, dags: Path
) -> Iterator[Stage]:
    played = (item for item in request.session.items if not any(it.args[0] for it in item.iter_markers("skipif")))
    rows = [row for item in played if (row := row_of(item))]
    stage = Stage(airflow, database, dags, rows)
    stage.keeps_task_state = request.config.getoption("--keep-task-state")
    yield stage
    stage.close()
