"""Operator and sensor end alike, however they wait: the same states, results, errors and lines in the log."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from tests.airflow_runs import DASHBOARD, eventually, kick_off
from tests.supported import has

pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]

TRIES_REMEMBER = has("A retry goes on with the execution")
POKES_REMEMBER = has("A rescheduled sensor knows")

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
        return all(started.told(task) for task in tasks)

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
    lines = [without_ids_and_times(line) for line in run.told(task, tries)]
    result = run.xcom(task) if state == "success" else None
    if result and task.startswith("run_"):
        result = {**result, "kickoff_id": "ID"}
    return state, tries, error, list(map(without_ids_and_times, skip)), lines, result


@pytest.mark.parametrize("name", SENSORS)
def test_sensor(run, name):
    deferred, poke, reschedule = (ends(run, f"sensor_{name}_{mode}") for mode in SENSOR_MODES)

    assert deferred[:2] == SENSORS[name]
    assert poke == deferred
    assert reschedule == (deferred if POKES_REMEMBER else (*deferred[:4], reschedule[4], deferred[5]))
    # Without a memory, each poke tells the progress, and none knows what has passed before it.
    told = [line for line in deferred[4] if POKES_REMEMBER or "passed between two polls" not in line]
    assert list(dict.fromkeys(reschedule[4])) == told


@pytest.mark.parametrize("name", RUNS)
def test_operator(run, name):
    deferred, sync = (ends(run, f"run_{name}_{mode}") for mode in RUN_MODES)

    assert deferred[:2] == RUNS[name]
    assert sync == deferred


@pytest.mark.parametrize("mode", SENSOR_MODES)
def test_what_a_failed_sensor_says(run, mode):
    kind, message = run.error(f"sensor_failed_{mode}")

    assert kind == "CrewTaskFailed"
    assert "failed after 1m 1s" in message
    assert "The crew says: The writer ran out of credit." in message


@pytest.mark.parametrize("mode", SENSOR_MODES)
def test_what_a_sensor_says_whose_time_is_over(run, mode):
    kind, message = run.error(f"sensor_slow_{mode}")

    assert kind == "CrewSensorTimeout"
    assert "Last seen: task 1 of 2, research_task. It cannot be cancelled." in message
    assert "Clear this task to wait again." in message


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("mode", RUN_MODES)
def test_a_failed_crew_is_kicked_off_anew_by_a_retry(crews, mode):
    started = [kickoff.meta["airflow"] for kickoff in crews["failing"].kickoffs if kickoff.meta]

    tries = [meta["try_number"] for meta in started if meta["task_id"] == f"run_failed_{mode}"]
    assert tries == [1, 2]


@pytest.mark.skipif(not TRIES_REMEMBER, reason="before Airflow 3.3 a try knows nothing of another")
@pytest.mark.parametrize("mode", RUN_MODES)
def test_a_try_whose_time_is_over_is_followed_by_one_that_goes_on_with_the_execution(run, crews, mode):
    task = f"run_slow_{mode}"
    started = [kickoff.meta["airflow"] for kickoff in crews["slow"].kickoffs if kickoff.meta]

    assert [meta["try_number"] for meta in started if meta["task_id"] == task] == [1]
    assert any("gone on with" in line for line in run.told(task, 2))
    assert run.error(task, 2)[0] == "WaitedTooLong"


@pytest.mark.parametrize("task", ["sensor_completed_poke", "sensor_completed_reschedule", "run_slow_deferred"])
def test_the_link_is_there_in_every_mode(run, task):
    execution = run.xcom(task, "kickoff_id") if task.startswith("run_") else run.xcom(task)["kickoff_id"]

    assert run.link(task) == DASHBOARD.format(kickoff_id=execution)
