"""The service is in trouble when the crew is to be kicked off."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, row

IMPATIENT = {"request_timeout": 3}


UNCERTAIN = Ends("failed", "nothing", "goes on")
UNCERTAIN_AND_NOT_STARTED = Ends("failed", "nothing", "was never started", kickoffs=0)


def waited(scene, operation: str) -> float:
    """Return how long it took from the first request of a kind to the second."""
    first, second = scene.crew.requests.on(operation)[:2]
    return second.received_at - first.received_at


@row(
    "The service refuses connections when the task begins, and is back before its retry",
    COMPLETED_IN_ATTEMPT_2,
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
    Ends("failed", "nothing", "was never started", kickoffs=0, tries=2),
    retries=1,
)
def test_service_refuses_in_every_try(scene):
    scene.crew.faults.refuse()
    scene.start()


@row(
    "The service refuses connections just when the kickoff is to be sent, and is back before the retry",
    COMPLETED_IN_ATTEMPT_2,
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


@row("The service answers 500 for a moment before the kickoff", COMPLETED)
def test_inputs_500_for_a_moment(scene):
    scene.crew.faults.answer(500, on="inputs", times=2)
    scene.start()
    scene.finish()


@row(
    "The service answers 500 for so long that no kickoff is sent, and works again at the retry",
    COMPLETED_IN_ATTEMPT_2,
    retries=1,
)
def test_inputs_500_until_the_retry(scene):
    scene.crew.faults.answer(500, on="inputs", times=3)
    scene.start()
    scene.finish()


@row(
    "The deployment has slept for a while, and its gateway answers 503 until it is awake",
    COMPLETED,
    ways=(*RUN, "kickoff"),
    core=True,
)
def test_service_wakes_up(scene):
    scene.crew.fall_asleep(25)
    scene.start()
    scene.finish()


@row("The deployment has slept for a while, and validate_inputs is off", COMPLETED, validate_inputs=False)
def test_service_wakes_up_unasked(scene):
    scene.crew.fall_asleep(15)
    scene.start()
    scene.finish()


@row("The service does not answer before the kickoff for a while", COMPLETED)
def test_inputs_hang_for_a_while(scene):
    scene.connect(extra=IMPATIENT)
    scene.crew.faults.hang(on="inputs", times=4)
    scene.start()
    scene.finish()


@row("The kickoff is answered with 429 and Retry-After in seconds", COMPLETED, core=True)
def test_kickoff_429_with_seconds(scene):
    scene.crew.faults.answer(429, retry_after=5, on="kickoff")
    scene.start()
    scene.finish()
    assert waited(scene, "kickoff") >= 5


@row("The kickoff is answered with 429 and Retry-After as a date", COMPLETED)
def test_kickoff_429_with_a_date(scene):
    scene.crew.faults.answer(429, retry_after=6, retry_after_date=True, on="kickoff")
    scene.start()
    scene.finish()
    assert waited(scene, "kickoff") >= 4  # a date has whole seconds


@row("The kickoff is answered with 429 for so long that the try gives up", COMPLETED_IN_ATTEMPT_2, retries=1)
def test_kickoff_429_until_the_retry(scene):
    scene.crew.faults.answer(429, on="kickoff", times=3)
    scene.start()
    scene.finish()


@row(
    "The kickoff is answered with 503 and Retry-After in seconds",
    UNCERTAIN_AND_NOT_STARTED,
    ways=RUN,
    core=True,
    retries=2,
)
def test_kickoff_503_with_seconds(scene):
    scene.crew.faults.answer(503, retry_after=1, on="kickoff")
    scene.start()


@row(
    "The kickoff is answered with 503 and Retry-After as a date, and has been taken all the same",
    UNCERTAIN,
    retries=2,
)
def test_kickoff_503_with_a_date(scene):
    scene.crew.faults.answer(503, retry_after=1, retry_after_date=True, on="kickoff", after_taken=True)
    scene.start()


@row("The kickoff is answered with 500 and has been taken", UNCERTAIN, retries=2)
def test_kickoff_500(scene):
    scene.crew.faults.answer(500, on="kickoff", after_taken=True)
    scene.start()


@row("The kickoff is answered with 502 and a page of HTML by a gateway, and has been taken", UNCERTAIN, retries=2)
def test_kickoff_502_with_html(scene):
    scene.crew.faults.answer(502, body="<html>Bad Gateway</html>", on="kickoff", after_taken=True)
    scene.start()


@row("The connection breaks off before the crew has taken the kickoff", UNCERTAIN_AND_NOT_STARTED, retries=2)
def test_kickoff_reset_before_it_is_taken(scene):
    scene.crew.faults.reset(on="kickoff")
    scene.start()


@row("The connection breaks off after the crew has taken the kickoff", UNCERTAIN, ways=RUN, retries=2)
def test_kickoff_reset_after_it_is_taken(scene):
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()


@row("The answer to the kickoff never comes", UNCERTAIN, retries=2)
def test_kickoff_hangs(scene):
    scene.connect(extra=IMPATIENT)
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()


@row("The answer to the kickoff is broken JSON", UNCERTAIN, retries=2)
def test_kickoff_broken_json(scene):
    scene.crew.faults.truncate(on="kickoff")
    scene.start()


@row("The answer to the kickoff breaks off in the middle", UNCERTAIN, retries=2)
def test_kickoff_answer_breaks_off(scene):
    scene.crew.faults.truncate(on="kickoff", incomplete=True)
    scene.start()


@row(
    "It cannot be known whether a kickoff started the crew, and on_uncertain_kickoff is retry",
    Ends("success", "the result", "has completed", kickoffs=2, tries=2),
    ways=RUN,
    on_uncertain_kickoff="retry",
    retries=1,
)
def test_kickoff_retried_when_uncertain(scene):
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()
    scene.finish(2)
