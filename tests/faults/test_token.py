"""The token or the connection changes or is missing."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, Ends, paid_again, row

# Searching the log for the token also finds a token that starts with it.
NEW_TOKEN = f"{TOKEN}-of-today"
MISSING = "There is none of that name"
FOR_THE_USER = LONG.model_copy(update={"user_token_may_kickoff": False})
LARGE = LONG.model_copy(update={"output": "x" * 100_000})


REFUSED = Ends("failed", "nothing", "not started", kickoffs=0)


def waiting(scene) -> None:
    """Start a run, and return when the task has started an execution, polled and waits."""
    scene.start()
    if "deferred" in scene.way:
        scene.wait_for("deferred")
    scene.looked()


def disconnect(scene) -> None:
    scene.airflow.api.delete(f"connections/{scene.connection}")


@row(COMPLETED, ways=(*RUN, "sensor reschedule"), core=True)
def test_token_rotated(scene):
    """The token is rotated while the crew runs, and the connection is changed a little later."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.answered_with(401)
    scene.connect(password=NEW_TOKEN)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, forgotten={"deferred": paid_again(), "sync": paid_again()})
def test_token_revoked(scene):
    """The token is revoked while the crew runs. When the task has failed, it gets another token and is cleared."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.wait_until_over()
    scene.connect(password=NEW_TOKEN)
    scene.run.clear(scene.task_id)
    scene.finish()


@row(Ends("failed", "nothing", "running"), ways=("sensor deferred", "sensor reschedule"), retries=2)
def test_token_revoked_from_a_sensor(scene):
    """The token is revoked while a sensor waits."""
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)


@row(REFUSED, scenario=FOR_THE_USER, retries=2)
def test_token_of_a_user(scene):
    """The only token is a user token that may not start executions."""
    disconnect(scene)  # Airflow does not take a password away from a connection
    scene.connect(password=None, extra={"user_bearer_token": scene.crew.user_token})
    scene.start()


@row(REFUSED, scenario=FOR_THE_USER, token_type="user", retries=2)
def test_token_of_a_user_is_asked_for(scene):
    """`token_type` is `user`, and that token may not start executions."""
    scene.connect(extra={"user_bearer_token": scene.crew.user_token})
    scene.start()


@row(REFUSED, token_type="user", retries=2)
def test_token_of_a_user_is_missing(scene):
    """`token_type` is `user`, and the connection has no user token."""
    scene.start()


@row(COMPLETED, ways=RUN)
def test_connection_deleted(scene):
    """The connection is deleted while the task waits."""
    waiting(scene)
    disconnect(scene)
    scene.looked()
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


@row(COMPLETED_IN_ATTEMPT_2, max_outage=8, forgotten={"deferred": paid_again()})
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


@row(replace(COMPLETED, tries=3), scenario=LARGE, retries=1, forgotten={"deferred": paid_again(tries=3)})
def test_connection_deleted_before_the_result_is_read(scene):
    """
    The connection is deleted before a large result is read. When the task has failed, it is restored and the task
    is cleared.
    """
    waiting(scene)
    disconnect(scene)
    scene.finish()
    scene.wait_until_over()
    scene.connect()
    scene.run.clear(scene.task_id)


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, max_outage=8, retries=1)
def test_crew_moved(scene):
    """The crew gets another address, and the connection is changed, while the task waits."""
    waiting(scene)
    execution = scene.execution()
    with LocalCrewService(LONG, token=TOKEN) as moved:
        moved.next_kickoff_id(execution)
        moved.take({"topic": "ferries"}, None, {})
        scene.crew.faults.refuse()
        scene.connect(port=moved.port)
        moved.finish(execution)
        scene.finish()
        scene.wait_until_over()


@row(replace(REFUSED, tries=2), ways=RUN, retries=1)
def test_no_connection(scene):
    """The connection does not exist."""
    disconnect(scene)
    scene.start()


@row(COMPLETED)
def test_connection_of_another_type(scene):
    """The connection has another type, and all required fields."""
    scene.connect(conn_type="http")
    scene.start()
    scene.finish()


@row(Ends("failed", "nothing", "not started", kickoffs=0, tries=2), retries=1)
def test_connection_to_a_database(scene):
    """The connection has another type, and does not point to a crew."""
    scene.connect(conn_type="postgres", schema="airflow", login="reader")
    scene.start()
