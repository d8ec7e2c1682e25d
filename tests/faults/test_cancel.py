"""A task with cancel_on_kill or cancel_on_timeout cancels its execution, or must not."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import requests

from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.local import LocalCrewService, Scenario
from dev.rest import ApiError
from tests.airflow_runs import TOKEN, eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, SENSOR, Ends, Way, paid_again, row
from tests.faults.scenes import PAUSE, Code, Scene, standing
from tests.supported import AIRFLOW

IN_TWENTY_SECONDS = Code("datetime.timedelta(seconds=20)")
WAITS = (*RUN, "sensor deferred", "sensor poke")
CANCELLED = Ends("failed", "only the kickoff ID", "revoked")
STILL_RUNNING = Ends("failed", "only the kickoff ID", "running")
CANCELLED_AND_PAID_AGAIN = Ends("success", "the result", "completed", kickoffs=2, tries=2)
ALWAYS: dict[str, Any] = {"cancel_on_kill": True, "cancel_on_timeout": True}
# Airflow tells a trigger that a user has ended its task from 3.3 on.
BY_TRIGGER: tuple[Way, ...] = ("deferred", "sensor deferred")


def waiting(scene) -> None:
    """Start, and return when the task waits where it will wait."""
    scene.start()
    scene.looked(2)
    if "deferred" in scene.way:
        scene.wait_for("deferred")
        scene.looked()


def marked(scene, state: str) -> None:
    """Mark the waiting task, and return when the crew was asked to stop."""
    waiting(scene)
    scene.mark(state)
    scene.answered("stop")
    scene.unwatched()


def never_stopped(scene) -> None:
    """Check that the crew was not asked to stop, also some time after the task has ended."""
    scene.wait_until_over()
    time.sleep(5)
    assert not scene.crew.requests.on("stop")


@row(CANCELLED, ways=WAITS, core=True, retries=2, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_marked_as_failed(scene):
    """The task is marked as failed while it waits."""
    marked(scene, "failed")
    if AIRFLOW[:2] == (3, 3):  # Airflow 3.4 stores no XCom of a task that has ended
        eventually(lambda: (scene.xcom(PROGRESS)["end"] or {}).get("error") == "ExecutionCancelled")


@row(Ends("success", "only the kickoff ID", "revoked"), ways=RUN, retries=2, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_marked_as_a_success(scene):
    """The task is marked as a success while it waits."""
    marked(scene, "success")


@row(CANCELLED_AND_PAID_AGAIN, ways=RUN, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_marked_as_failed_and_cleared(scene):
    """The task is marked as failed while it waits, and cleared later."""
    marked(scene, "failed")
    scene.clear("failed")
    scene.finish(2)


@row(CANCELLED, ways=RUN, retries=2, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_run_marked_as_failed(scene):
    """The DAG run is marked as failed while its task waits."""
    waiting(scene)
    path = f"dags/{scene.dag_id}/dagRuns/{quote(scene.run.run_id, safe='')}"
    scene.airflow.api.patch(path, {"state": "failed"})
    scene.answered("stop")


@row(
    {"sync": CANCELLED, "kickoff": Ends("failed", "only the kickoff ID", "revoked")},
    ways=("sync", "kickoff"),
    retries=2,
    **ALWAYS,
)
def test_cancel_marked_before_the_answer(scene):
    """The task is marked as failed before the answer to its kickoff."""
    held = scene.start_and_hold_the_answer()
    process = scene.process()
    scene.mark("failed")
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.5)
    held.release()
    scene.answered("stop")


@row(Ends("failed", "nothing", "revoked", tries=2), ways=("sync",), retries=2, needs_store=("sync",), **ALWAYS)
def test_cancel_marked_before_it_reattaches(scene):
    """The task is marked as failed while a retry asks for the execution of the first attempt."""
    waiting(scene)
    scene.kill()
    scene.crew.faults.hang(on="status", seconds=30)
    polls = len(scene.crew.requests.on("status"))
    scene.wait_for("running", tries=2)
    scene.asked("status", polls + 1)
    scene.mark("failed")
    scene.answered("stop")


@row(CANCELLED, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_with_a_slow_answer(scene):
    """The crew takes five seconds to answer the request to cancel."""
    waiting(scene)
    scene.crew.faults.hang(on="stop", seconds=5)
    scene.mark("failed")
    eventually(lambda: standing(scene.crew, scene.crew.kickoffs[0]) == "revoked")


@row(
    {
        **dict.fromkeys(RUN, CANCELLED_AND_PAID_AGAIN),
        **dict.fromkeys(SENSOR, Ends("failed", "nothing", "revoked")),
    },
    ways=(*RUN, *SENSOR),
    core=True,
    retries=1,
    timeout=15,
    cancel_on_timeout=True,
)
def test_cancel_after_a_timeout(scene):
    """`timeout` passes, and a retry starts another execution."""
    scene.start()
    scene.answered("stop")
    if "sensor" not in scene.way:
        scene.finish(2)


@row(
    CANCELLED,
    ways=WAITS,
    retries=0,
    execution_timeout=IN_TWENTY_SECONDS,
    cancel_on_timeout=True,
)
def test_cancel_after_execution_timeout(scene):
    """`execution_timeout` passes, and there is no retry."""
    scene.start()
    scene.answered("stop")


@row(
    Ends("failed", "nothing", "revoked"),
    ways=("kickoff",),
    retries=0,
    execution_timeout=IN_TWENTY_SECONDS,
    cancel_on_timeout=True,
)
def test_cancel_kickoff_that_took_too_long(scene):
    """`execution_timeout` passes before the answer to the kickoff."""
    scene.crew.faults.hang(on="kickoff", after_taken=True, seconds=25)
    scene.start()
    scene.answered("stop")


@row(Ends("skipped", "only the kickoff ID", "revoked"), ways=RUN, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_after_dagrun_timeout(scene):
    """`dagrun_timeout` passes."""
    before, code = time.time(), scene.file.read_text()
    limited = "schedule=None, dagrun_timeout=datetime.timedelta(seconds=40)"
    scene.file.write_text(code.replace("schedule=None", limited))
    scene.airflow.api.wait_for_dag(scene.dag_id, parsed_after=before)
    waiting(scene)
    scene.answered("stop")


@row(STILL_RUNNING, ways=RUN, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_without_endpoint(scene):
    """The crew has no endpoint to cancel, and the task is marked as failed."""
    scene.crew.faults.answer(404, on="stop", for_seconds=math.inf)
    marked(scene, "failed")
    assert len(scene.crew.requests.on("stop")) == 1


@row(Ends("failed", "only the kickoff ID", "completed"), needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_when_completed(scene):
    """The crew completes at the moment at which the task is marked."""
    waiting(scene)
    scene.crew.faults.hang(on="status", seconds=10)
    scene.looked()
    scene.finish()
    scene.mark("failed")
    scene.answered("stop")


# What the word REVOKED means is known only where a deployed crew says it.
_DEPLOYED = Scenario.model_validate(LONG.model_dump() | {"dialect": "deployed"})


def stopped_in_the_dashboard(scene) -> None:
    """Stop the execution as a person does who does not use Airflow."""
    address = f"{scene.crew.url}/stop/{quote(scene.execution(), safe='')}"
    answer = requests.post(address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
    assert answer.status_code == 200


@row(CANCELLED, ways=(*RUN, *SENSOR), retries=2, scenario=_DEPLOYED)
def test_stopped_in_the_dashboard(scene):
    """A person stops the execution in the crew's dashboard."""
    waiting(scene)
    stopped_in_the_dashboard(scene)


@row(Ends("failed", "nothing", "revoked", tries=2), ways=("sync",), retries=3, scenario=_DEPLOYED)
def test_stopped_in_the_dashboard_before_a_retry(scene):
    """A person stops the execution in the crew's dashboard before a retry of a killed worker."""
    waiting(scene)
    scene.kill()
    stopped_in_the_dashboard(scene)


@row(CANCELLED_AND_PAID_AGAIN, ways=RUN, retries=2, scenario=_DEPLOYED)
def test_stopped_in_the_dashboard_and_cleared(scene):
    """A person stops the execution in the crew's dashboard, and the task is cleared."""
    waiting(scene)
    stopped_in_the_dashboard(scene)
    scene.wait_for("failed", tries=1)
    scene.clear("failed")
    scene.finish(2)


@row(
    COMPLETED_IN_ATTEMPT_2, ways=WAITS, core=True, forgotten={"deferred": paid_again()}, needs_store=RUN, **ALWAYS
)
def test_cancel_not_when_cleared(scene):
    """The task is cleared while it waits."""
    waiting(scene)
    scene.run.clear(scene.task_id)
    eventually(lambda: scene.task["try_number"] == 2, pause=PAUSE)
    scene.looked(2)
    if scene.forgets and scene.way == "deferred":
        scene.execution(2)
    for kickoff in scene.crew.kickoffs:
        scene.crew.finish(kickoff.kickoff_id)
    never_stopped(scene)


@pytest.mark.parametrize("way", RUN)
def test_cancel_not_when_the_run_is_deleted(airflow, database, dags, way):
    with LocalCrewService(LONG, token=TOKEN) as crew:
        scene = Scene(airflow, database, crew, dags, f"cancel_not_when_deleted_{way}", way)
        scene.connect()
        scene.write_dag(ALWAYS)
        waiting(scene)
        with suppress(ApiError):  # Airflow 3.3 rejects that
            airflow.api.delete(f"dags/{scene.dag_id}/dagRuns/{quote(scene.run.run_id, safe='')}")
        time.sleep(10)

        assert not crew.requests.on("stop")
        assert standing(crew, crew.kickoffs[0]) == "running"


@row(COMPLETED_IN_ATTEMPT_2, ways=("sync",), retries=1, **ALWAYS)
def test_cancel_not_when_killed(scene):
    """The worker is killed while the task waits."""
    waiting(scene)
    scene.kill()
    scene.wait_for("running", tries=2)
    scene.finish()
    never_stopped(scene)


@row(COMPLETED, ways=("sync",), retries=1, **ALWAYS)
def test_cancel_not_when_told_to_end(scene):
    """The task gets SIGTERM while it waits."""
    waiting(scene)
    scene.kill(number=signal.SIGTERM)
    scene.looked(2)
    scene.finish()
    never_stopped(scene)


@row(
    Ends("success", "the kickoff ID", "running"),
    ways=("kickoff",),
    needs_store=("kickoff",),
    on_success_callback=[Code("lambda _: until('later')")],
    **ALWAYS,
)
def test_cancel_not_when_successful(scene):
    """The process gets SIGTERM after the task has succeeded."""
    scene.start()
    process = psutil.Process(scene.wait_for("success")["pid"])
    process.terminate()
    time.sleep(3)
    scene.now("later")
    never_stopped(scene)


@row(COMPLETED, ways=RUN, **ALWAYS)
def test_cancel_not_when_paused(scene):
    """The DAG is paused while its task waits."""
    waiting(scene)
    scene.pause()
    scene.looked(2)
    scene.pause(paused=False)
    scene.finish()
    never_stopped(scene)


@contextmanager
def triggerer_restarted(airflow, _database):
    for triggerer in airflow.all_of("triggerer"):
        triggerer.stop(grace=60)
    airflow.start_what_has_ended()
    airflow.wait_until_healthy()
    yield


@contextmanager
def triggerer_killed(airflow, _database):
    for triggerer in airflow.all_of("triggerer"):
        triggerer.kill()
    airflow.start_what_has_ended()
    airflow.wait_until_healthy()
    yield


@row(COMPLETED, harm=triggerer_restarted, **ALWAYS)
def test_cancel_not_when_the_triggerer_restarts(scene):
    """The triggerer restarts while it polls."""
    waiting(scene)
    with scene.harmed():
        scene.looked(2)
    scene.finish()
    never_stopped(scene)


@row(COMPLETED, harm=triggerer_killed, **ALWAYS)
def test_cancel_not_when_the_triggerer_is_killed(scene):
    """The triggerer is killed while it polls."""
    waiting(scene)
    with scene.harmed():
        scene.looked(2)
    scene.finish()
    never_stopped(scene)


@contextmanager
def no_triggerer(airflow, _database):
    # The next one starts the trigger of a task that no longer waits, unless the old one may still be alive.
    for triggerer in airflow.all_of("triggerer"):
        triggerer.stop(grace=60)
    yield
    airflow.start_what_has_ended()
    airflow.wait_until_healthy()


@row(CANCELLED, ways=BY_TRIGGER, harm=no_triggerer, needs_store=BY_TRIGGER, **ALWAYS)
def test_cancel_marked_without_a_triggerer(scene):
    """The task is marked as failed while no triggerer is running."""
    waiting(scene)
    with scene.harmed():
        scene.mark("failed")
    scene.answered("stop")


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=BY_TRIGGER,
    harm=no_triggerer,
    needs_store=BY_TRIGGER,
    forgotten={"deferred": paid_again()},
    **ALWAYS,
)
def test_cancel_not_when_cleared_without_a_triggerer(scene):
    """The task is cleared while no triggerer is running, and the next attempt returns the result."""
    waiting(scene)
    with scene.harmed():
        scene.finish()
        scene.run.clear(scene.task_id)
        scene.wait_for("success", tries=2)
    never_stopped(scene)


@row(replace(STILL_RUNNING, tries=2), harm=no_triggerer, needs_store=("deferred",), **ALWAYS)
def test_cancel_not_when_the_next_attempt_gives_up(scene):
    """The task is cleared while no triggerer is running, and the next attempt gives up before the crew ends."""
    waiting(scene)
    with scene.harmed():
        scene.rewrite_dag(ALWAYS | {"deferrable": False, "cancel_on_timeout": False, "timeout": 5, "retries": 0})
        scene.run.clear(scene.task_id)
        scene.wait_for("failed", tries=2)
    never_stopped(scene)


@contextmanager
def triggerer_stopped(airflow, _database):
    """Let the triggerer notice late what befalls its tasks."""
    triggerers = [psutil.Process(triggerer.pid) for triggerer in airflow.all_of("triggerer")]
    processes = [process for each in triggerers for process in (each, *each.children(recursive=True))]
    for process in processes:
        process.suspend()
    yield
    for process in processes:
        process.resume()


@row(
    {
        "deferred": replace(STILL_RUNNING, tries=2),
        "sensor deferred": Ends("failed", "nothing", "running", tries=2),
    },
    ways=BY_TRIGGER,
    harm=triggerer_stopped,
    needs_store=BY_TRIGGER,
    **ALWAYS,
)
def test_cancel_not_when_the_triggerer_is_slow(scene):
    """The task is cleared, and the next attempt gives up, before the triggerer notices."""
    waiting(scene)
    scene.rewrite_dag(ALWAYS | {"deferrable": False, "cancel_on_timeout": False, "timeout": 5, "retries": 0})
    with scene.harmed():
        scene.run.clear(scene.task_id)
        scene.wait_for("failed", tries=2)
    never_stopped(scene)


@row(COMPLETED, executor="celery", alone=True, **ALWAYS)
def test_cancel_not_when_handed_over(scene):
    """One of two triggerers hands over to the other."""
    waiting(scene)
    for triggerer in scene.airflow.all_of("triggerer"):
        triggerer.stop(grace=60)
        scene.looked(2)
        scene.airflow.start_what_has_ended()
        scene.airflow.wait_until_healthy()
    scene.finish()
    never_stopped(scene)
