"""A scheduler dies with its workers, and the next one runs a task without retries once more."""

from __future__ import annotations

import time

import pytest

from tests.airflow_runs import eventually
from tests.supported import has

pytestmark = [
    pytest.mark.skipif(
        has("Retries reattach"), reason="from Airflow 3.3 on the next try knows, as other tests tell"
    ),
]

# The next one takes over from a scheduler whose heartbeat is older than scheduler_health_check_threshold.
UNTIL_IT_COUNTS_AS_DEAD = 35


def test_attempt_beyond_the_retries_starts_no_execution(start, crews, airflow):
    crew = crews["slow"]
    run = start("lost_scheduler")

    (first,) = eventually(lambda: run.kickoffs(crew))
    eventually(lambda: any(first.kickoff_id in each.path for each in crew.requests.on("status")))
    scheduler = airflow.processes["scheduler"]
    scheduler.kill()
    time.sleep(UNTIL_IT_COUNTS_AS_DEAD)
    scheduler.start()

    assert run.wait() == "failed"
    assert run.task("report")["try_number"] == 2
    kind, message = run.error("report", 2)
    assert kind == "CrewTaskFailed"
    assert run.run_id in message, "by which the first execution can be found"
    assert run.kickoffs(crew) == [first]
