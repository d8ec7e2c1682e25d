"""After everything else has run: the token is in no log, no XCom, no trigger, no template, no page."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import create_engine, inspect, text

from tests.airflow_runs import TOKEN
from tests.supported import AIRFLOW, has

pytestmark = pytest.mark.timeout(180)

SECRETS = [TOKEN.encode(), b"not-the-token-9876"]


def found_in(told: bytes) -> bool:
    return any(secret in told for secret in SECRETS)


@pytest.fixture(scope="module")
def database(airflow):
    """Whichever database this Airflow has."""
    engine = create_engine(airflow._environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def rows(database, query: str) -> list[tuple[Any, ...]]:
    """Return them with the bytes themselves, of which PostgreSQL's driver only gives a view."""
    found = database.execute(text(query))
    return [tuple(bytes(each) if isinstance(each, memoryview) else each for each in row) for row in found]


@pytest.fixture(scope="module")
def deferred(start, crews):
    """A task that is deferred while it is looked at, in a run of everything that leaves something behind."""
    run = start("reattach_cleared")
    run.wait_for("report", "deferred")
    yield run
    crews["slow"].finish(run.xcom("report", "kickoff_id"))
    run.wait()


def test_in_no_log(airflow, deferred):
    logs = [path for path in airflow.home.rglob("*") if path.is_file() and "airflow.db" not in path.name]
    looked_at = b"".join(path.read_bytes() for path in logs)

    assert f"Execution {deferred.xcom('report', 'kickoff_id')}".encode() in looked_at
    assert [str(path) for path in logs if found_in(path.read_bytes())] == []


def test_in_no_trigger(airflow, database, deferred):
    triggers = rows(database, "select kwargs from trigger where classpath like '%CrewExecutionTrigger'")
    fernet = Fernet(airflow._environment["AIRFLOW__CORE__FERNET_KEY"])
    # Airflow 3.3 keeps them as they are.
    kwargs = [kept.encode() if kept.startswith("{") else fernet.decrypt(kept) for (kept,) in triggers]

    assert any(deferred.xcom("report", "kickoff_id").encode() in told for told in kwargs)
    assert not any(map(found_in, kwargs))


def test_in_no_table(database, deferred):
    """XComs, rendered templates, task states and all else that Airflow keeps."""
    if has("Progress in XCom"):
        assert deferred.xcom("report", "crew_progress")["kickoff_id"] == deferred.xcom("report", "kickoff_id")
    xcoms, fields = ("xcom_v2", "rtif_v2") if AIRFLOW >= (3, 4) else ("xcom", "rendered_task_instance_fields")
    assert deferred.xcom("report", "kickoff_id") in repr(rows(database, f"select * from {xcoms}"))  # noqa: S608
    tables = inspect(database).get_table_names()
    kept = {xcoms, fields, "trigger"}
    assert kept | ({"task_state_store"} if AIRFLOW >= (3, 3) else set()) <= set(tables)
    for table in tables:
        told = repr(rows(database, f'select * from "{table}"')).encode()  # noqa: S608
        assert not found_in(told), table


def test_on_no_page(airflow, deferred):
    task = f"dags/{deferred.dag_id}/dagRuns/{deferred.run_id}/taskInstances/report"
    left = [f"{task}/xcomEntries/crew_progress"] * has("Progress in XCom")
    pages = [task, f"{task}/xcomEntries", *left, f"{task}/links", "connections", "dags/features_sync/details"]

    assert not any(found_in(repr(airflow.api.get(page)).encode()) for page in pages)
