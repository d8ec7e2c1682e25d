"""The token or the connection changes or is missing."""

from __future__ import annotations

from tests.airflow_runs import TOKEN
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import waiting

# Searching the log for the token also finds a token that starts with it.
NEW_TOKEN = f"{TOKEN}-of-today"


def disconnect(scene) -> None:
    scene.airflow.api.delete(f"connections/{scene.connection}")


@row(COMPLETED, ways=(*RUN, "sensor reschedule"), core=("deferred",))
def test_token_rotated(scene):
    """The token is rotated while the crew runs, and the connection is changed a little later."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.answered_with(401)
    scene.connect(password=NEW_TOKEN)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, forgotten=RUN)
def test_token_revoked(scene):
    """The token is revoked while the crew runs. When the task has failed, it gets another token and is cleared."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.wait_until_over()
    scene.connect(password=NEW_TOKEN)
    scene.run.clear(scene.task_id)
    scene.finish()


@row(COMPLETED)
def test_connection_deleted_and_restored(scene):
    """The connection is deleted before the triggerer reads it, and restored a little later."""
    scene.crew.faults.hang(on="status", seconds=15)
    scene.start()
    scene.asked("status")
    disconnect(scene)
    scene.in_trouble()
    scene.connect()
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, max_outage=8, forgotten=("deferred",))
def test_connection_deleted_for_long(scene):
    """
    The connection is deleted before the triggerer reads it. When the task has failed, it is restored and the task
    is cleared.
    """
    scene.crew.faults.hang(on="status", seconds=15)
    scene.start()
    scene.asked("status")
    disconnect(scene)
    scene.wait_until_over()
    scene.connect()
    scene.run.clear(scene.task_id)
    scene.finish()


@row(Ends("failed", "nothing", "not started", kickoffs=0, tries=2), ways=RUN, retries=1)
def test_no_connection(scene):
    """The connection does not exist."""
    disconnect(scene)
    scene.start()
