"""The service is in trouble while the crew runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_crew.compat import CLEARING
from airflow_provider_crew.local.dialects.documented import Completed, Result
from tests.faults.rows import LONG, RUN, SENSOR, Ends, left_by, paid_again, row

IMPATIENT = {"request_timeout": 3}
PAID = "It is running, or waits, as far as is known, and is paid for."
GOES_ON = "no usable answer. The wait goes on for up to 10m 0s."
BACK = "Execution {id}: the service answers again"
UNKNOWN = "the service does not know it. A crew that waits for a person's answer reads like this: it may be alive"
# The trigger carries no result of that size; the task reads it.
LARGE = "x" * 100_000


def waited_out(*said: str) -> Ends:
    """Say what is to come of a trouble that passes."""
    return Ends("success", (*said, "Execution {id}: completed"), "the result", "has completed")


def waiting(scene) -> None:
    """Start, and return when the task has kicked off, has looked, and waits."""
    scene.start()
    if scene.way in {"deferred", "sensor deferred"}:
        scene.wait_for("deferred")
    scene.looked()


def troubled(scene, said: str) -> None:
    """Let the crew be done after the log has told of the trouble."""
    scene.tells(said)
    scene.finish()


def done_and_then(scene, harm: Callable[[], None]) -> None:
    """Let the crew be done after a look, and do the harm after the next one, which sees that."""
    execution = scene.execution()
    steps = iter([lambda: scene.crew.finish(execution), harm])
    scene.after_request = lambda _: next(steps, lambda: None)()


def completed(output: str = "Briefing") -> dict[str, Any]:
    return Completed(result=Result(output=output, tasks=[]), execution_time=1).model_dump()


@row(
    "The service is down for less than max_outage",
    waited_out(": connection refused.", GOES_ON, BACK),
    ways=("deferred", "sync", *SENSOR),
)
def test_waiting_down(scene):
    waiting(scene)
    scene.crew.faults.refuse()
    scene.tells(": connection refused.")
    scene.crew.faults.clear()
    scene.looked()
    scene.finish()


@row(
    "The service is down for longer than max_outage, in every try; then it is back, and the task is cleared",
    Ends(
        "success",
        (
            "Execution {id}: there was no usable answer for",
            ": connection refused.",
            "Last seen before: task 2 of 2, writing_task.",
            f"Cost: {PAID}",
            f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}.",
            "Execution {id}: kicked off by an earlier try",
        ),
        "the result",
        "has completed",
        tries=3,
    ),
    ways=RUN,
    core=True,
    max_outage=8,
    retries=1,
    forgotten={"deferred": paid_again(tries=3), "sync": paid_again(tries=3)},
)
def test_waiting_down_too_long(scene):
    waiting(scene)
    scene.tells("task 2 of 2, writing_task")
    scene.crew.faults.refuse()
    scene.wait_until_over()
    scene.crew.finish(scene.execution())
    scene.crew.faults.clear()
    scene.run.clear(scene.task_id)


@row(
    "The service is down for longer than max_outage, and is back before the retry",
    Ends("success", ("Execution {id}: there was no usable answer for",), "the result", "has completed", tries=2),
    ways=SENSOR,
    max_outage=8,
    retries=1,
)
def test_waiting_down_until_the_retry(scene):
    waiting(scene)
    scene.crew.faults.refuse()
    scene.wait_for("up_for_retry")
    scene.crew.faults.clear()
    scene.finish()


@row("A look is answered with 429 and Retry-After in seconds", waited_out("answers 429.", GOES_ON, BACK))
def test_waiting_429(scene):
    waiting(scene)
    scene.crew.faults.answer(429, retry_after=8, on="status")
    troubled(scene, "answers 429.")
    scene.wait_until_over()
    assert pause_after(scene, 429) >= 8


@row("A look is answered with 503 and Retry-After as a date", waited_out("answers 503.", GOES_ON, BACK), ways=RUN)
def test_waiting_503(scene):
    waiting(scene)
    scene.crew.faults.answer(503, retry_after=8, retry_after_date=True, on="status")
    troubled(scene, "answers 503.")
    scene.wait_until_over()
    assert pause_after(scene, 503) >= 6  # a date has whole seconds


def pause_after(scene, status: int) -> float:
    """Return how long nothing was asked after the first answer of that kind."""
    looks = scene.crew.requests.on("status")
    number = next(number for number, look in enumerate(looks) if look.status == status)
    return looks[number + 1].received_at - looks[number].received_at


@row(
    "Looks are answered with 500",
    waited_out("answers 500. The service says: Internal Server Error", GOES_ON, BACK),
)
def test_waiting_500(scene):
    waiting(scene)
    scene.crew.faults.answer(500, on="status", times=2)
    troubled(scene, "answers 500.")


@row(
    "Looks are answered with 502 and a page of HTML by a gateway",
    waited_out("answers 502. It begins: '<html>Bad Gateway</html>' (text/html", GOES_ON, BACK),
)
def test_waiting_502(scene):
    waiting(scene)
    scene.crew.faults.answer(502, body="<html>Bad Gateway</html>", on="status", times=2)
    troubled(scene, "answers 502.")


@row(
    "A gateway says of the crew that there is none (404), as while it is deployed anew",
    waited_out("answers 404 with text/html", "it is not the crew's own.", GOES_ON, BACK),
)
def test_waiting_404_of_a_gateway(scene):
    waiting(scene)
    scene.crew.faults.answer(404, body="<html>no such app</html>", on="status", times=4)
    troubled(scene, "it is not the crew's own.")


@row(
    "Connections break off at looks",
    waited_out("got no complete answer: connection reset by peer.", GOES_ON, BACK),
)
def test_waiting_reset(scene):
    waiting(scene)
    scene.crew.faults.reset(on="status", times=4)
    troubled(scene, "connection reset by peer.")


@row(
    "Looks are not answered",
    waited_out("got no complete answer: it was not complete after 3 s (request_timeout).", GOES_ON, BACK),
    ways=RUN,
)
def test_waiting_hang(scene):
    scene.connect(extra=IMPATIENT)
    waiting(scene)
    scene.crew.faults.hang(on="status", times=2)
    troubled(scene, "it was not complete after 3 s")


@row("Looks are answered with broken JSON", waited_out("cannot be read: it is not JSON.", GOES_ON, BACK))
def test_waiting_broken_json(scene):
    waiting(scene)
    scene.crew.faults.truncate(on="status", times=2)
    troubled(scene, "it is not JSON.")


@row("Answers to looks break off in the middle", waited_out("got no complete answer:", GOES_ON, BACK))
def test_waiting_answer_breaks_off(scene):
    waiting(scene)
    scene.crew.faults.truncate(on="status", incomplete=True, times=4)
    troubled(scene, "got no complete answer:")


@row("The service does not know the execution right after the kickoff", waited_out(), ways=RUN)
def test_waiting_not_known_yet(scene):
    scene.crew.faults.answer(404, on="status", times=3)
    scene.start()
    scene.asked("status", 3)
    scene.finish()


@row(
    "The service says for a moment that it does not know the execution any more",
    waited_out(
        f"Execution {{id}}: {UNKNOWN}",
        "The wait goes on for up to 10m 0s.",
        "Execution {id}: the service knows it again",
    ),
    ways=("deferred", "sync", "sensor reschedule"),
)
def test_waiting_unknown_for_a_moment(scene):
    waiting(scene)
    scene.tells("task 2 of 2, writing_task")
    scene.crew.faults.answer(404, on="status", times=2)
    troubled(scene, UNKNOWN)


@row(
    "The service has forgotten the execution",
    {
        way: Ends(
            "failed",
            ("Execution {id}: the service has not known it for", *advice),
            left_by(way),
            "is forgotten",
        )
        for way, advice in [
            (
                "deferred",
                ("under Storage, Task State Store, delete crew_kickoff",),
            ),
            ("sensor deferred", ("Clear this task to wait again.",)),
        ]
    },
    ways=("deferred", "sensor deferred"),
    max_outage=20,
    retries=2,
)
def test_waiting_forgotten(scene):
    waiting(scene)
    scene.crew.forget(scene.execution())


@row(
    "The service forgets an execution right after a poll has seen its result",
    Ends("success", ("Execution {id}: completed",), "the result", "is forgotten"),
)
def test_waiting_forgotten_when_completed(scene):
    waiting(scene)
    done_and_then(scene, lambda: scene.crew.forget(scene.execution()))


@row(
    "The service forgets an execution that a look has seen completed, before its large result is read",
    Ends(
        "failed",
        (
            "Execution {id}: completed",
            "Execution {id} has completed, and its result cannot be read.",
            "The task is not retried; clearing it kicks off anew",
        ),
        "the kickoff id only",
        "is forgotten",
    ),
    scenario=LONG.model_copy(update={"output": LARGE}),
    max_outage=20,
    retries=2,
)
def test_waiting_forgotten_before_it_is_read(scene):
    waiting(scene)
    done_and_then(scene, lambda: scene.crew.forget(scene.execution()))


@row(
    "The service does not know a completed execution just when its large result is read",
    waited_out("Execution {id}: completed"),
    scenario=LONG.model_copy(update={"output": LARGE}),
)
def test_waiting_unknown_when_read(scene):
    waiting(scene)
    done_and_then(scene, lambda: scene.crew.faults.answer(404, on="status", times=2))


@row(
    "The service is down for longer than max_outage just when a large result is to be read, and back at the retry",
    Ends(
        "success",
        (
            "Execution {id}: there was no usable answer for",
            "It was paid for, and has ended.",
            "If Airflow retries, it reads the result of this execution.",
        ),
        "the result",
        "has completed",
        tries=2,
    ),
    core=True,
    scenario=LONG.model_copy(update={"output": LARGE}),
    max_outage=8,
    retries=1,
)
def test_waiting_down_when_read(scene):
    waiting(scene)
    done_and_then(scene, scene.crew.faults.refuse)
    scene.wait_for("up_for_retry")
    scene.crew.faults.clear()


@row(
    "The service calls an execution running again when its large result is read",
    waited_out("Execution {id}: completed"),
    scenario=LONG.model_copy(update={"output": LARGE}),
)
def test_waiting_running_again(scene):
    waiting(scene)
    execution = scene.execution()
    running = {"status": "running"}
    scene.crew.set_status(execution, completed(LARGE), running, running, completed(LARGE))
    scene.finish()
    scene.wait_until_over()
    assert scene.xcom()["output"] == LARGE


@row(
    "The service uses a word for the state that nobody knows, for a while",
    waited_out("its state is 'awaiting_human_feedback', which is not known.", "It is taken for still going."),
    ways=RUN,
)
def test_waiting_unknown_word(scene):
    waiting(scene)
    execution = scene.execution()
    scene.crew.set_status(execution, {"status": "awaiting_human_feedback"})
    scene.tells("It is taken for still going.")
    scene.crew.set_status(execution)
    scene.finish()


@row(
    "The service uses a word for the state that nobody knows, until the time to wait is over",
    {
        way: Ends(
            "failed",
            (
                "It is taken for still going.",
                "Execution {id} was still going when the time to wait was over",
                "Last seen: awaiting_human_feedback. It cannot be cancelled.",
                advice,
            ),
            left_by(way),
            "goes on",
        )
        for way, advice in [
            ("deferred", f"So does {CLEARING}."),
            ("sensor deferred", "Clear this task to wait again."),
        ]
    },
    ways=("deferred", "sensor deferred"),
    timeout=30,
    retries=0,
)
def test_waiting_unknown_word_for_ever(scene):
    scene.start()
    scene.crew.set_status(scene.execution(), {"status": "awaiting_human_feedback"})
