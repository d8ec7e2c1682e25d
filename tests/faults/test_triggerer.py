"""The triggerer is down, or there are two."""

from __future__ import annotations

import random
import threading

from tests.airflow_runs import eventually
from tests.faults.harm import no_triggerer, nothing, suspended, xcoms_hang
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, Ends, row
from tests.faults.scenes import PAUSE

# Longer than the task's wait, and than the minute that Airflow allows the triggerer.
_SHORT = 40


@row(
    Ends("failed", "only the kickoff ID", "running"),
    ways=("deferred", "sensor deferred"),
    harm=no_triggerer,
    retries=0,
    timeout=_SHORT,
    cost="running",
)
def test_no_triggerer_in_time(scene):
    """No triggerer is running until `timeout` passes, and the crew is still running."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.wait_for("failed")


@row(COMPLETED, ways=("deferred", "sensor deferred"), harm=no_triggerer, retries=0, timeout=_SHORT)
def test_completes_but_no_triggerer_in_time(scene):
    """No triggerer is running until `timeout` passes, and the crew has completed."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.finish()
        scene.wait_for("success")


@row(COMPLETED_IN_ATTEMPT_2, harm=no_triggerer, retries=1, cost="running")
def test_broken_trigger(scene):
    """The triggerer cannot import the trigger, and the crew is running."""
    scene.start()
    trigger = scene.wait_for("deferred")["trigger"]["id"]
    with scene.harmed():
        scene.database.execute("UPDATE trigger SET classpath = 'not_installed.Trigger' WHERE id = %s", trigger)
    scene.wait_for("deferred", tries=2)
    scene.finish()


def _triggerers(scene):
    alive = {"job_type": "TriggererJob", "is_alive": True}
    return {job["id"] for job in scene.airflow.api.get("jobs", **alive)["jobs"]}


def watching(scene):
    """Return the triggerers that poll the executions of this row."""
    return {(task["trigger"] or {}).get("triggerer_id") for task in scene.tasks} - {None}


@row(
    Ends("success", "the result", "completed", kickoffs=20),
    harm=suspended("triggerer"),
    executor="local",
    mapped=20,
    retries=0,
)
def test_one_of_two_stands_still(scene):
    """One of two triggerers hangs until the other has taken over, and then continues."""
    before = _triggerers(scene)  # one that an earlier row has killed may still count as alive
    another = scene.airflow.start_another("triggerer")
    try:
        eventually(lambda: _triggerers(scene) - before, pause=PAUSE)
        scene.start()
        scene.wait_for_all("deferred")
        eventually(lambda: len(watching(scene)) == 2, pause=PAUSE)
        with scene.harmed():
            eventually(lambda: len(watching(scene)) == 1, pause=PAUSE)
            # Neither has seen it yet when the first one continues.
            for kickoff in scene.crew.kickoffs:
                scene.crew.finish(kickoff.kickoff_id)
        scene.wait_until_over()
    finally:
        another.stop()


@row(
    Ends("success", "the result", "completed", kickoffs=51),
    harm=xcoms_hang,
    mapped=51,
    retries=0,
    answer_in_airflow=True,
    cancel_on_kill=True,
    pool_slots=16,  # of 128: a scheduler whose machine starts all at once may take them for orphans
)
def test_xcoms_hang(scene):
    """The XCom backend of the triggerer hangs for one of 51 tasks. All are polled, and return their results."""

    def polled():
        return {request.path for request in scene.crew.requests.on("status")}

    with scene.harmed():
        scene.start()
        scene.wait_for_all("deferred")
        scene.crew.requests.clear()
        eventually(lambda: len(polled()) == scene.mapped, pause=PAUSE)
        for kickoff in scene.crew.kickoffs:
            scene.crew.finish(kickoff.kickoff_id)
        scene.wait_until_over(900)


@row(
    Ends("success", "the result", "completed", kickoffs=60),
    harm=nothing(),
    mapped=60,
    retries=0,
    poll_interval=1.0,
)
def test_quickly_over(scene):
    """60 executions complete within three seconds after the deferral."""
    dice = random.Random(1)  # noqa: S311 - for tests
    soon_over = set()

    def at_the_first_look(request):
        if request.operation == "status" and request.path not in soon_over:
            soon_over.add(request.path)
            kickoff_id = request.path.rpartition("/")[2]
            # The task defers right after it.
            threading.Timer(dice.uniform(0, 3), scene.crew.finish, [kickoff_id]).start()

    scene.after_request = at_the_first_look
    scene.start()
    scene.wait_until_over(900)
    assert len(soon_over) == 60
