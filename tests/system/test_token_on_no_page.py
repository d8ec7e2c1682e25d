"""After everything else has run: the token is in no log, no XCom, no trigger, no template, no page."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from airflow_runs import TOKEN

pytestmark = pytest.mark.timeout(180)

SECRETS = [TOKEN.encode(), b"not-the-token-9876"]


def found_in(text: bytes) -> bool:
    return any(secret in text for secret in SECRETS)


def rows(airflow, query: str) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{airflow.home}/airflow.db?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


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


def test_in_no_trigger(airflow, deferred):
    triggers = rows(airflow, "select kwargs from trigger where classpath like '%CrewExecutionTrigger'")
    kwargs = [row[0].encode() for row in triggers]

    # Airflow 3.3 keeps them as they are. Were they encrypted, the kickoff id would not be found either.
    assert any(deferred.xcom("report", "kickoff_id").encode() in told for told in kwargs)
    assert not any(map(found_in, kwargs))


def test_in_no_table(airflow, deferred):
    """XComs, rendered templates, task states and all else that Airflow keeps."""
    assert deferred
    tables = [row[0] for row in rows(airflow, "select name from sqlite_master where type = 'table'")]
    assert {"xcom", "rendered_task_instance_fields", "task_state_store", "trigger"} <= set(tables)
    for table in tables:
        told = repr(rows(airflow, f'select * from "{table}"')).encode()  # noqa: S608
        assert not found_in(told), table


def test_on_no_page(airflow, deferred):
    task = f"dags/{deferred.dag_id}/dagRuns/{deferred.run_id}/taskInstances/report"
    pages = [task, f"{task}/xcomEntries", f"{task}/links", "connections", "dags/features_sync/details"]

    assert not any(found_in(repr(airflow.api.get(page)).encode()) for page in pages)
