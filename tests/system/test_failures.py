"""What goes wrong for good ends a task at its first try, and says what is wrong, what runs, and what to do."""

from __future__ import annotations

from datetime import datetime

import pytest

from airflow_provider_crew.compat import CLEARING
from tests.supported import has

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def run(start):
    started = start("failures")
    assert started.wait() == "failed"
    return started


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (
            "kickoff_missing_input",
            "Given: topik, audience. The crew does not list the input 'topik'. Is 'topik' meant",
        ),
        ("kickoff_no_json", "inputs.topic[1].on, of type datetime, is no JSON."),
        (
            "kickoff_no_mapping",
            "inputs is of type str, and must be an object of names and values.",
        ),
        ("kickoff_refused_token", "answers 401. The service says: Unauthorized"),
        ("kickoff_no_connection", "The connection 'crew_of_nobody' cannot be used. There is none of that name."),
        ("kickoff_no_user_token", "The user's token is asked for (token_type user), and there is none."),
        ("sensor_nothing", "kickoff_id is None, which is no kickoff id."),
        ("sensor_odd_id", r"The kickoff id 'a\tb' has characters that cannot be printed."),
    ],
)
def test_what_a_retry_would_not_mend_is_not_retried(run, task, says):
    kind, message = run.error(task)

    assert run.task(task)["try_number"] == 1
    assert kind == "CrewTaskFailed"
    assert says in message


def test_a_crew_that_is_away_is_tried_again(run):
    assert run.task("kickoff_nobody_there")["try_number"] == 2
    kind, message = run.error("kickoff_nobody_there", 2)
    assert kind == "Unreachable"
    assert ": connection refused." in message


@pytest.mark.parametrize("mode", ["deferred", "sync"])
def test_an_execution_timeout_ends_the_wait_and_says_what_goes_on(run, mode):
    task = f"run_execution_timeout_{mode}"
    kind, message = run.error(task)
    execution = run.xcom(task, "kickoff_id")
    expected, then = (
        ("CrewTaskTimeout", f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}.")
        if has("A retry goes on with the execution")
        else ("CrewTaskFailed", f'Wait for it with CrewExecutionSensor(kickoff_id="{execution}").')
    )

    assert kind == expected
    assert f"Execution {execution}" in message
    assert "It cannot be cancelled." in message
    assert then in message
    # Airflow's own duration is wrong with SQLite when a minute ends in between.
    began, ended = (datetime.fromisoformat(run.task(task)[f"{end}_date"]) for end in ("start", "end"))
    assert (ended - began).total_seconds() >= 12
