"""Airflow's API server is down or hangs."""

from __future__ import annotations

import time
from contextlib import contextmanager

import psutil

from tests.airflow_runs import eventually
from tests.faults.harm import killed
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, paid_again, row
from tests.faults.scenes import PAUSE, Code

_WORKERS_GIVE_UP = (
    "Airflow ends a task after three failed heartbeats (`[workers] max_failed_heartbeats`), within two "
    "minutes. apache/airflow#73244 proposes a longer limit."
)
_FAILED_BY_SCHEDULER = (
    "Airflow cannot resume a task without its API server, so its scheduler fails the task: apache/airflow#53797."
)
# A retry that starts while the API server is down fails at once.
_LATER = Code("datetime.timedelta(minutes=2)")
# Shorter than the 30 seconds after which Airflow, as configured here, ends a silent task.
_OUTAGE = 15


api_server_killed = killed("api-server")


@contextmanager
def api_server_hangs(airflow, _database):
    server = psutil.Process(airflow.processes["api-server"].pid)
    everything = [server, *server.children(recursive=True)]
    for process in everything:
        process.suspend()
    began = time.monotonic()
    try:
        yield
        time.sleep(max(_OUTAGE + began - time.monotonic(), 0))
    finally:
        for process in everything:
            process.resume()
    airflow.wait_until_healthy()


def _ended(process):
    """Wait until a process that was found before has ended."""
    eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, pause=PAUSE)


@row(COMPLETED, ways=("deferred", "sensor deferred"), harm=api_server_killed, core=True, retries=0)
def test_api_server_away_while_deferred(scene):
    """The API server is down while a task is deferred."""
    scene.start(until="deferred")
    with scene.harmed():
        # The triggerer does not need it.
        scene.looked(3)
    scene.finish()


@row(
    COMPLETED_IN_ATTEMPT_2,
    harm=api_server_killed,
    why=_FAILED_BY_SCHEDULER,
    retries=0,
    forgotten={"deferred": paid_again()},
)
def test_trigger_fires_without_api_server(scene):
    """An execution completes while the API server is down, and the task is cleared later."""
    scene.start(until="deferred")
    with scene.harmed():
        scene.finish()
        # Time for the trigger to fire, and for Airflow to give up starting the task.
        scene.looked()
        time.sleep(60)
    scene.wait_for("failed")
    scene.run.clear(scene.task_id)
    if scene.forgets:
        scene.finish(2)
    scene.wait_for("success", tries=2)


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync",),
    harm=api_server_killed,
    why=_WORKERS_GIVE_UP,
    retries=1,
    retry_delay=_LATER,
)
def test_api_server_away_while_waiting(scene):
    """The API server is down for longer than workers tolerate, while a task waits in one."""
    scene.start()
    process = scene.process()
    scene.looked()
    with scene.harmed():
        _ended(process)
    scene.wait_for("running", tries=2)
    scene.finish()


@row(
    COMPLETED_IN_ATTEMPT_2,
    ways=("sync",),
    harm=api_server_killed,
    why=_WORKERS_GIVE_UP,
    retries=1,
    retry_delay=_LATER,
)
def test_result_without_api_server(scene):
    """An execution completes while the API server is down, so the task cannot return its result."""
    scene.start()
    process = scene.process()
    scene.looked()
    with scene.harmed():
        scene.finish()
        _ended(process)


@row(
    Ends("failed", "nothing", "running", tries=2),
    ways=(*RUN, "kickoff"),
    harm=api_server_killed,
    why=_WORKERS_GIVE_UP,
    retries=2,
    retry_delay=_LATER,
)
def test_answer_without_api_server(scene):
    """The crew answers a kickoff while the API server is down for longer than workers tolerate."""
    held = scene.start_and_hold_the_answer()
    process = scene.process()
    with scene.harmed():
        held.release()
        _ended(process)


@row(COMPLETED_IN_ATTEMPT_2, harm=api_server_killed, why=_WORKERS_GIVE_UP, retries=1, retry_delay=_LATER)
def test_kickoff_without_api_server(scene):
    """The API server is down when a task is about to send its kickoff."""
    scene.connect(extra={"request_timeout": 900})
    held = scene.hold("inputs")
    scene.start()
    scene.asked("inputs")
    process = scene.process()
    with scene.harmed():
        held.release()
        _ended(process)
        assert not scene.crew.kickoffs
    scene.finish()


@row(COMPLETED, ways=(*RUN, "sensor deferred", "sensor poke"), harm=api_server_hangs, retries=0)
def test_api_server_hangs_while_waiting(scene):
    """The API server hangs for 15 seconds while a task waits."""
    scene.start()
    scene.execution()
    # Until the progress stops changing, because pushing it to XCom would also wait for the API server.
    scene.looked(6)
    if "deferred" in scene.way:
        scene.wait_for("deferred")
    with scene.harmed():
        scene.looked(2)
    scene.finish()


@row(
    {"deferred": COMPLETED, "sync": COMPLETED, "kickoff": Ends("success", "the kickoff ID", "running")},
    ways=(*RUN, "kickoff"),
    harm=api_server_hangs,
    retries=0,
)
def test_api_server_hangs_at_answer(scene):
    """The API server hangs for 15 seconds when the crew answers a kickoff."""
    held = scene.start_and_hold_the_answer()
    with scene.harmed():
        held.release()
    if scene.way != "kickoff":
        scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=("sync",), harm=api_server_hangs, retries=1)
def test_api_server_hangs_at_answer_and_killed(scene):
    """The API server hangs for 15 seconds when the crew answers a kickoff, and the worker is killed later."""
    held = scene.start_and_hold_the_answer()
    with scene.harmed():
        held.release()
    scene.asked("status")
    scene.kill()
    scene.wait_for("running", tries=2)
    scene.finish()


@row(
    COMPLETED,
    ways=(*RUN, "sensor deferred", "sensor poke"),
    harm=api_server_hangs,
    pre_execute=Code("lambda _: until('harmed')"),
    retries=0,
)
def test_api_server_hangs_at_begin(scene):
    """The API server hangs for 15 seconds when a task reads its connection."""
    scene.start()
    scene.process()
    with scene.harmed():
        scene.now("harmed")
    scene.finish()


@row(COMPLETED, ways=("sync", "sensor poke"), harm=api_server_hangs, retries=0)
def test_api_server_hangs_at_end(scene):
    """An execution completes while the API server hangs for 15 seconds."""
    scene.start()
    scene.execution()
    scene.looked()
    with scene.harmed():
        scene.finish()
