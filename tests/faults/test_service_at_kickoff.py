"""The service is in trouble when the crew is to be kicked off."""

from __future__ import annotations

from tests.faults.rows import RUN, Crew, Ends, row

IMPATIENT = {"request_timeout": 3}
NOT_KICKED_OFF = "If Airflow retries, or you clear the task, the crew is kicked off."
WAKING = "It may be waking up after a quiet period, and is given 5 minutes for that."
UNCERTAIN = (
    "It is not known whether the kickoff started an execution.",
    "The crew may be running, and paid for, without anybody watching it.",
    "There it can be found by its meta",
    "The task is not retried; clearing it kicks off anew.",
)


def uncertain(said: str, *, taken: bool) -> Ends:
    """Say what is to come of a kickoff whose answer tells nothing."""
    crew: Crew = "goes on" if taken else "was never started"
    return Ends("failed", (*UNCERTAIN, said), "nothing", crew, kickoffs=int(taken))


def waited(scene, operation: str) -> float:
    """Return how long it took from the first request of a kind to the second."""
    first, second = scene.crew.requests.on(operation)[:2]
    return second.received_at - first.received_at


@row(
    "The service refuses connections when the task begins, and is back before its retry",
    Ends(
        "success",
        ("The crew cannot be reached at 127.0.0.1:", ": connection refused.", NOT_KICKED_OFF),
        "the result",
        "has completed",
        tries=2,
    ),
    ways=RUN,
    core=True,
    retries=1,
)
def test_service_refuses_until_the_retry(scene):
    scene.crew.faults.refuse()
    scene.start()
    scene.wait_for("up_for_retry")
    scene.crew.faults.clear()
    scene.finish()


@row(
    "The service refuses connections in every try",
    Ends(
        "failed",
        ("The crew cannot be reached at 127.0.0.1:", "Check the host and the port", NOT_KICKED_OFF),
        "nothing",
        "was never started",
        kickoffs=0,
        tries=2,
    ),
    retries=1,
)
def test_service_refuses_in_every_try(scene):
    scene.crew.faults.refuse()
    scene.start()


@row(
    "The service refuses connections just when the kickoff is to be sent, and is back before the retry",
    Ends(
        "success",
        ("POST http://127.0.0.1", "Nothing was started", NOT_KICKED_OFF),
        "the result",
        "has completed",
        tries=2,
    ),
    ways=RUN,
    retries=1,
)
def test_service_refuses_only_the_kickoff(scene):
    scene.after_request = lambda _: scene.crew.faults.refuse()
    scene.start()
    scene.wait_for("up_for_retry")
    scene.after_request = lambda _: None
    scene.crew.faults.clear()
    scene.finish()


@row(
    "The service answers 500 for a moment before the kickoff",
    Ends("success", ("The crew answers 500 to GET /inputs. Again in",), "the result", "has completed"),
)
def test_inputs_500_for_a_moment(scene):
    scene.crew.faults.answer(500, on="inputs", times=2)
    scene.start()
    scene.finish()


@row(
    "The service answers 500 for so long that no kickoff is sent, and works again at the retry",
    Ends("success", ("/inputs answers 500.", NOT_KICKED_OFF), "the result", "has completed", tries=2),
    retries=1,
)
def test_inputs_500_until_the_retry(scene):
    scene.crew.faults.answer(500, on="inputs", times=3)
    scene.start()
    scene.finish()


@row(
    "The deployment has slept for a while, and its gateway answers 503 until it is awake",
    {
        "deferred": Ends(
            "success", ("The crew answers 503 to GET /inputs.", WAKING), "the result", "has completed"
        ),
        "sync": Ends("success", ("The crew answers 503 to GET /inputs.", WAKING), "the result", "has completed"),
        "kickoff": Ends(
            "success", ("The crew answers 503 to GET /inputs.", WAKING), "the kickoff id", "has completed"
        ),
    },
    ways=(*RUN, "kickoff"),
    core=True,
)
def test_service_wakes_up(scene):
    scene.crew.fall_asleep(25)
    scene.start()
    scene.finish()


@row(
    "The deployment has slept for a while, and validate_inputs is off",
    Ends("success", ("The crew answers 503 to GET /inputs.", WAKING), "the result", "has completed"),
    validate_inputs=False,
)
def test_service_wakes_up_unasked(scene):
    scene.crew.fall_asleep(15)
    scene.start()
    scene.finish()


@row(
    "The service does not answer before the kickoff for a while",
    Ends("success", ("it was not complete after 3 s (request_timeout).", WAKING), "the result", "has completed"),
)
def test_inputs_hang_for_a_while(scene):
    scene.connect(extra=IMPATIENT)
    scene.crew.faults.hang(on="inputs", times=4)
    scene.start()
    scene.finish()


@row(
    "The kickoff is answered with 429 and Retry-After in seconds",
    Ends("success", ("it answers 429 to POST /kickoff. Again in",), "the result", "has completed"),
    core=True,
)
def test_kickoff_429_with_seconds(scene):
    scene.crew.faults.answer(429, retry_after=5, on="kickoff")
    scene.start()
    scene.finish()
    assert waited(scene, "kickoff") >= 5


@row(
    "The kickoff is answered with 429 and Retry-After as a date",
    Ends("success", ("it answers 429 to POST /kickoff. Again in",), "the result", "has completed"),
)
def test_kickoff_429_with_a_date(scene):
    scene.crew.faults.answer(429, retry_after=6, retry_after_date=True, on="kickoff")
    scene.start()
    scene.finish()
    assert waited(scene, "kickoff") >= 4  # a date has whole seconds


@row(
    "The kickoff is answered with 429 for so long that the try gives up",
    Ends(
        "success",
        (
            "/kickoff answers 429.",
            "The crew takes no more requests for now: it answers 429 to POST /kickoff.",
            NOT_KICKED_OFF,
        ),
        "the result",
        "has completed",
        tries=2,
    ),
    retries=1,
)
def test_kickoff_429_until_the_retry(scene):
    scene.crew.faults.answer(429, on="kickoff", times=3)
    scene.start()
    scene.finish()


@row(
    "The kickoff is answered with 503 and Retry-After in seconds",
    uncertain("/kickoff answers 503. The service says: Service Unavailable", taken=False),
    ways=RUN,
    core=True,
    retries=2,
)
def test_kickoff_503_with_seconds(scene):
    scene.crew.faults.answer(503, retry_after=1, on="kickoff")
    scene.start()


@row(
    "The kickoff is answered with 503 and Retry-After as a date, and has been taken all the same",
    uncertain("/kickoff answers 503. The service says: Service Unavailable", taken=True),
    retries=2,
)
def test_kickoff_503_with_a_date(scene):
    scene.crew.faults.answer(503, retry_after=1, retry_after_date=True, on="kickoff", after_taken=True)
    scene.start()


@row(
    "The kickoff is answered with 500 and has been taken",
    uncertain("/kickoff answers 500. The service says: Internal Server Error", taken=True),
    retries=2,
)
def test_kickoff_500(scene):
    scene.crew.faults.answer(500, on="kickoff", after_taken=True)
    scene.start()


@row(
    "The kickoff is answered with 502 and a page of HTML by a gateway, and has been taken",
    uncertain("/kickoff answers 502. It begins: '<html>Bad Gateway</html>' (text/html", taken=True),
    retries=2,
)
def test_kickoff_502_with_html(scene):
    scene.crew.faults.answer(502, body="<html>Bad Gateway</html>", on="kickoff", after_taken=True)
    scene.start()


@row(
    "The connection breaks off before the crew has taken the kickoff",
    uncertain("/kickoff got no complete answer: connection reset by peer.", taken=False),
    retries=2,
)
def test_kickoff_reset_before_it_is_taken(scene):
    scene.crew.faults.reset(on="kickoff")
    scene.start()


@row(
    "The connection breaks off after the crew has taken the kickoff",
    uncertain("/kickoff got no complete answer: connection reset by peer.", taken=True),
    ways=RUN,
    retries=2,
)
def test_kickoff_reset_after_it_is_taken(scene):
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()


@row(
    "The answer to the kickoff never comes",
    uncertain("/kickoff got no complete answer: it was not complete after 3 s (request_timeout).", taken=True),
    retries=2,
)
def test_kickoff_hangs(scene):
    scene.connect(extra=IMPATIENT)
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()


@row(
    "The answer to the kickoff is broken JSON",
    uncertain("/kickoff answers 200 with application/json that cannot be read.", taken=True),
    retries=2,
)
def test_kickoff_broken_json(scene):
    scene.crew.faults.truncate(on="kickoff")
    scene.start()


@row(
    "The answer to the kickoff breaks off in the middle",
    uncertain("/kickoff got no complete answer:", taken=True),
    retries=2,
)
def test_kickoff_answer_breaks_off(scene):
    scene.crew.faults.truncate(on="kickoff", incomplete=True)
    scene.start()


@row(
    "It cannot be known whether a kickoff started the crew, and on_uncertain_kickoff is retry",
    Ends(
        "success",
        (
            UNCERTAIN[0],
            "An earlier try sent a kickoff and ended before it knew the answer.",
            "It is kicked off anew, as on_uncertain_kickoff='retry' says.",
        ),
        "the result",
        "has completed",
        kickoffs=2,
        tries=2,
    ),
    ways=RUN,
    on_uncertain_kickoff="retry",
    retries=1,
)
def test_kickoff_retried_when_uncertain(scene):
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()
    scene.finish(2)
