"""The token or the connection changes, or is not there."""

from __future__ import annotations

from airflow_provider_crew.compat import CLEARING, KEEPING
from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import TOKEN
from tests.faults.rows import LONG, RUN, Ends, paid_again, row

BACK = "Execution {id}: the service answers again"
# The log is searched for the token, and with it for the one that begins like it.
NEW_TOKEN = f"{TOKEN}-of-today"
MENDED = "Then clear the task: a retry would not help."
MISSING = "There is none of that name"
FOR_THE_USER = LONG.model_copy(update={"user_token_may_kickoff": False})
LARGE = LONG.model_copy(update={"output": "x" * 100_000})
REJECTED = (
    "answers 401.",
    "The execution goes on. The connection is read anew before the next poll, in case the token was rotated;",
)
GIVEN_UP = (
    *REJECTED,
    "Execution {id}: the crew does not accept the token.",
    "renew it in the connection with the one on the crew's Status tab.",
    "It is running, or waits, as far as is known, and is paid for.",
)


def not_kicked_off(*said: str) -> Ends:
    return Ends("failed", (*said, MENDED), "nothing", "was never started", kickoffs=0)


def waiting(scene) -> None:
    """Start, and return when the task has kicked off, has looked, and waits."""
    scene.start()
    if "deferred" in scene.way:
        scene.wait_for("deferred")
    scene.looked()


def disconnect(scene) -> None:
    scene.airflow.api.delete(f"connections/{scene.connection}")


@row(
    "The token is rotated, and the connection changed a little later, while the crew runs",
    Ends("success", (*REJECTED, BACK), "the result", "has completed"),
    ways=(*RUN, "sensor reschedule"),
    core=True,
)
def test_token_rotated(scene):
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.tells("in case the token was rotated")
    scene.connect(password=NEW_TOKEN)
    scene.finish()


@row(
    "The token is revoked while the crew runs; when the task has failed, it gets another, and is cleared",
    Ends(
        "success",
        (*GIVEN_UP, f"Then clear the task{KEEPING}: it waits for it again."),
        "the result",
        "has completed",
        tries=2,
    ),
    ways=RUN,
    forgotten={"deferred": paid_again(), "sync": paid_again()},
)
def test_token_revoked(scene):
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)
    scene.wait_until_over()
    scene.connect(password=NEW_TOKEN)
    scene.run.clear(scene.task_id)
    scene.finish()


@row(
    "The token is revoked while a sensor waits",
    Ends("failed", (*GIVEN_UP, "Clear this task to wait again."), "nothing", "goes on"),
    ways=("sensor deferred", "sensor reschedule"),
    retries=2,
)
def test_token_revoked_from_a_sensor(scene):
    waiting(scene)
    scene.crew.rotate_token(NEW_TOKEN)


@row(
    "The only token is a user's, which may not kick off",
    not_kicked_off(
        "/kickoff answers 403. The service says: Forbidden: A user token may not kick off this crew.",
        "use the organization's token, or have the user's permissions widened.",
    ),
    scenario=FOR_THE_USER,
    retries=2,
)
def test_token_of_a_user(scene):
    disconnect(scene)  # Airflow does not take a password away from a connection
    scene.connect(password=None, extra={"user_bearer_token": scene.crew.user_token})
    scene.start()


@row(
    "The task asks for the user's token, which may not kick off",
    not_kicked_off(
        "/kickoff answers 403.", "use the organization's token, or have the user's permissions widened."
    ),
    scenario=FOR_THE_USER,
    token_type="user",
    retries=2,
)
def test_token_of_a_user_is_asked_for(scene):
    scene.connect(extra={"user_bearer_token": scene.crew.user_token})
    scene.start()


@row(
    "The task asks for the user's token, and there is none",
    not_kicked_off("The user's token is asked for (token_type user), and there is none."),
    token_type="user",
    retries=2,
)
def test_token_of_a_user_is_missing(scene):
    scene.start()


@row(
    "The connection is deleted while the task waits",
    Ends("success", ("Execution {id}: completed",), "the result", "has completed"),
    ways=RUN,
)
def test_connection_deleted(scene):
    waiting(scene)
    disconnect(scene)
    scene.looked()
    scene.finish()


@row(
    "The connection is deleted before the triggerer reads it, and is restored a little later",
    Ends(
        "success",
        ("cannot be read just now. The connection", MISSING, "The execution goes on, as far as is known.", BACK),
        "the result",
        "has completed",
    ),
)
def test_connection_deleted_and_restored(scene):
    scene.crew.faults.hang(on="status", seconds=15)
    scene.start()
    scene.asked("status")
    disconnect(scene)
    scene.tells("cannot be read just now. The connection")
    scene.connect()
    scene.finish()


@row(
    "The connection is deleted before the triggerer reads it; when the task has failed, it is restored, and the "
    "task is cleared",
    Ends(
        "success",
        (
            "Execution {id}: there was no usable answer for",
            MISSING,
            "It is running, or waits, as far as is known, and is paid for.",
            f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}.",
        ),
        "the result",
        "has completed",
        tries=2,
    ),
    max_outage=8,
    forgotten={"deferred": paid_again()},
)
def test_connection_deleted_for_long(scene):
    scene.crew.faults.hang(on="status", seconds=15)
    scene.start()
    scene.asked("status")
    disconnect(scene)
    scene.wait_until_over()
    scene.connect()
    scene.run.clear(scene.task_id)
    scene.finish()


@row(
    "The connection is deleted before a large result is read; when the task has failed, it is restored, and the "
    "task is cleared",
    Ends(
        "success",
        (
            "Execution {id} cannot be watched.",
            MISSING,
            "It was paid for, and has ended.",
            f"Then clear the task{KEEPING}: it waits for it again.",
        ),
        "the result",
        "has completed",
        tries=2,
    ),
    scenario=LARGE,
    retries=2,
    forgotten={"deferred": paid_again()},
)
def test_connection_deleted_before_the_result_is_read(scene):
    waiting(scene)
    disconnect(scene)
    scene.finish()
    scene.wait_until_over()
    scene.connect()
    scene.run.clear(scene.task_id)


@row(
    "The crew moves to another address, and the connection is changed, while the task waits",
    {
        way: Ends(
            "success",
            (
                "Execution {id}: there was no usable answer for",
                ": connection refused.",
                f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}.",
            ),
            "the result",
            "has completed",
            tries=2,
        )
        for way in RUN
    },
    ways=RUN,
    max_outage=8,
    retries=1,
)
def test_crew_moved(scene):
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


@row(
    "There is no such connection",
    not_kicked_off("The connection 'crew_no_connection_", MISSING, "Add it with the type Crew"),
    ways=RUN,
    retries=2,
)
def test_no_connection(scene):
    disconnect(scene)
    scene.start()


@row(
    "The connection is of another type, and has all that is needed",
    Ends("success", ("Execution {id}: completed",), "the result", "has completed"),
)
def test_connection_of_another_type(scene):
    scene.connect(conn_type="http")
    scene.start()
    scene.finish()


@row(
    "The connection is of another type, and is not one to a crew",
    Ends(
        "failed",
        (
            "what listens there does not speak https",
            "If Airflow retries, or you clear the task, the crew is kicked off.",
        ),
        "nothing",
        "was never started",
        kickoffs=0,
        tries=2,
    ),
    retries=1,
)
def test_connection_to_a_database(scene):
    scene.connect(conn_type="postgres", schema="airflow", login="reader")
    scene.start()
