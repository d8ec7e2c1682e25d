"""Operator and sensor end alike in every mode: the same states, attempts, errors and results."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from tests.airflow_runs import DASHBOARD, eventually, kick_off
from tests.supported import has

pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]

TRIES_REMEMBER = has("Retries reattach")

SENSOR_MODES = ("deferred", "poke", "reschedule")
RUN_MODES = ("deferred", "sync")
# What Airflow calls the end, and after how many tries.
SENSORS = {
    "completed": ("success", 1),
    "failed": ("failed", 1),
    "failed_soft": ("skipped", 1),
    "failed_never": ("skipped", 1),
    "slow": ("failed", 1),
    "slow_soft": ("skipped", 1),
    "unknown": ("failed", 1),
    "unknown_soft": ("skipped", 1),
}
RUNS = {"completed": ("success", 1), "failed": ("failed", 2), "slow": ("failed", 2 if TRIES_REMEMBER else 1)}


@pytest.fixture(scope="module")
def run(start, crews):
    crew = crews["slow"]
    ids = {name: kick_off(crew) for name in ("completed", "failed", "slow")}
    failure = {"status": "error", "error": "The writer ran out of credit", "execution_time": 61}
    started = start("waiting_alike", ids=ids | {"unknown": str(uuid.uuid4())})

    def all_have_seen_it_run(ending):
        tasks = [f"sensor_{name}_{mode}" for name in SENSORS for mode in SENSOR_MODES if name.startswith(ending)]
        return all(started.lines_about(ids[ending], task) for task in tasks)

    eventually(lambda: all_have_seen_it_run("completed"), 120)
    crew.finish(ids["completed"])
    eventually(lambda: all_have_seen_it_run("failed"), 120)
    crew.set_status(ids["failed"], failure)
    started.wait(240)
    return started


def without_ids_and_times(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)
    return re.sub(r"\b(\d+m )?\d+s\b", "TIME", text).replace(":" + text.rpartition("127.0.0.1:")[2][:5], "")


def ends(run, task: str) -> tuple[Any, ...]:
    state, tries = (run.task(task)[key] for key in ("state", "try_number"))
    error = tuple(map(without_ids_and_times, run.error(task, tries))) if state == "failed" else None
    skip = [event["reason"] for event in run.events(task) if event["event"] == "Skipping task."]
    result = run.xcom(task) if state == "success" else None
    if result and task.startswith("run_"):
        result = {**result, "kickoff_id": "ID"}
    return state, tries, error, list(map(without_ids_and_times, skip)), result


@pytest.mark.parametrize("name", SENSORS)
def test_sensor_ends_alike_in_every_mode(run, name):
    deferred, poke, reschedule = (ends(run, f"sensor_{name}_{mode}") for mode in SENSOR_MODES)

    assert deferred[:2] == SENSORS[name]
    assert poke == deferred
    assert reschedule == deferred


@pytest.mark.parametrize("name", RUNS)
def test_operator_ends_alike_in_every_mode(run, name):
    deferred, sync = (ends(run, f"run_{name}_{mode}") for mode in RUN_MODES)

    assert deferred[:2] == RUNS[name]
    assert sync == deferred


@pytest.mark.parametrize("mode", SENSOR_MODES)
def test_failed_sensor_has_the_error_of_the_crew(run, mode):
    kind, message = run.error(f"sensor_failed_{mode}")

    assert kind == "CrewTaskFailed"
    assert "The writer ran out of credit" in message


@pytest.mark.parametrize("mode", SENSOR_MODES)
def test_sensor_ends_at_its_timeout(run, mode):
    assert run.error(f"sensor_slow_{mode}")[0] == "CrewSensorTimeout"


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("mode", RUN_MODES)
def test_retry_after_a_failed_crew_starts_another_execution(crews, mode):
    started = [kickoff.meta["airflow"] for kickoff in crews["failing"].kickoffs if kickoff.meta]

    tries = [meta["try_number"] for meta in started if meta["task_id"] == f"run_failed_{mode}"]
    assert tries == [1, 2]


@pytest.mark.skipif(not TRIES_REMEMBER, reason="before Airflow 3.3 a try knows nothing of another")
@pytest.mark.parametrize("mode", RUN_MODES)
def test_retry_after_a_timeout_reattaches(run, crews, mode):
    task = f"run_slow_{mode}"
    started = [kickoff.meta["airflow"] for kickoff in crews["slow"].kickoffs if kickoff.meta]

    assert [meta["try_number"] for meta in started if meta["task_id"] == task] == [1]
    assert run.error(task, 2)[0] == "WaitedTooLong"


@pytest.mark.parametrize("task", ["sensor_completed_poke", "sensor_completed_reschedule", "run_slow_deferred"])
def test_link_exists_in_every_mode(run, task):
    execution = run.xcom(task, "kickoff_id") if task.startswith("run_") else run.xcom(task)["kickoff_id"]

    assert run.link(task) == DASHBOARD.format(kickoff_id=execution)
