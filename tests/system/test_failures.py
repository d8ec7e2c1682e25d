"""Errors that a retry would not fix end a task in its first attempt and name the cause."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.supported import has

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def run(start):
    started = start("failures")
    assert started.wait() == "failed"
    return started


@pytest.mark.parametrize(
    ("task", "cause"),
    [
        ("kickoff_missing_input", "topik"),
        ("kickoff_no_json", "inputs.topic[1].on"),
        ("kickoff_no_mapping", "inputs"),
        ("kickoff_refused_token", "401"),
        ("kickoff_no_user_token", "user_bearer_token"),
        ("sensor_nothing", "None"),
        ("sensor_odd_id", r"a\tb"),
    ],
)
def test_error_that_a_retry_would_not_fix_is_not_retried(run, task, cause):
    kind, message = run.error(task)

    assert run.task(task)["try_number"] == 1
    assert kind == "CrewTaskFailed"
    assert cause in message


@pytest.mark.parametrize(
    ("task", "cause"),
    [("kickoff_nobody_there", "127.0.0.1:9"), ("kickoff_no_connection", "crew_of_nobody")],
)
def test_unreachable_crew_or_connection_is_retried(run, task, cause):
    kind, message = run.error(task, 2)

    assert run.task(task)["try_number"] == 2
    assert kind == "Unreachable"
    assert cause in message


@pytest.mark.parametrize("mode", ["deferred", "sync"])
def test_execution_timeout_ends_the_wait_and_names_the_execution(run, mode):
    task = f"run_execution_timeout_{mode}"
    kind, message = run.error(task)
    execution = run.xcom(task, "kickoff_id")

    assert kind == ("CrewTaskTimeout" if has("Retries reattach") else "CrewTaskFailed")
    assert execution in message
    # Airflow's own duration is wrong with SQLite when a minute ends in between.
    began, ended = (datetime.fromisoformat(run.task(task)[f"{end}_date"]) for end in ("start", "end"))
    assert (ended - began).total_seconds() >= 12
