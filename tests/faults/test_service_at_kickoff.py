"""The crew's service fails at the kickoff."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import RETRY_LATER

IMPATIENT = {"request_timeout": 3}


UNCERTAIN = Ends("failed", "nothing", "running")
UNCERTAIN_AND_NOT_STARTED = Ends("failed", "nothing", "not started", kickoffs=0)


def waited(scene, operation: str) -> float:
    """Return the seconds between the first two requests of a kind."""
    first, second = scene.crew.requests.on(operation)[:2]
    return second.received_at - first.received_at


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, core=True, retries=1, pre_execute=RETRY_LATER)
def test_service_refuses_until_the_retry(scene):
    """The crew refuses connections when the task starts, and works again before the retry."""
    scene.crew.faults.refuse()
    scene.start()
    scene.wait_for("running", tries=2)
    scene.crew.faults.clear()
    scene.now("retry")
    scene.finish()


@row(Ends("failed", "nothing", "not started", kickoffs=0, tries=2), retries=1)
def test_service_refuses_in_every_try(scene):
    """The crew refuses connections in every attempt."""
    scene.crew.faults.refuse()
    scene.start()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, retries=1, pre_execute=RETRY_LATER)
def test_service_refuses_only_the_kickoff(scene):
    """The crew refuses the kickoff's connection, and works again before the retry."""
    scene.after_request = lambda _: scene.crew.faults.refuse()
    scene.start()
    scene.wait_for("running", tries=2)
    scene.after_request = lambda _: None
    scene.crew.faults.clear()
    scene.now("retry")
    scene.finish()


@row(COMPLETED)
def test_inputs_500_for_a_moment(scene):
    """The crew briefly answers 500 before the kickoff."""
    scene.crew.faults.answer(500, on="inputs", times=2)
    scene.start()
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, retries=1)
def test_inputs_500_until_the_retry(scene):
    """The crew answers 500 until the attempt fails before its kickoff, and works again at the retry."""
    scene.crew.faults.answer(500, on="inputs", times=3)
    scene.start()
    scene.finish()


@row(COMPLETED, ways=(*RUN, "kickoff"), core=True)
def test_service_wakes_up(scene):
    """An idle deployment wakes up, and its gateway answers 503 until then."""
    scene.crew.fall_asleep(25)
    scene.start()
    scene.finish()


@row(COMPLETED, validate_inputs=False)
def test_service_wakes_up_unasked(scene):
    """An idle deployment wakes up, and `validate_inputs` is False."""
    scene.crew.fall_asleep(15)
    scene.start()
    scene.finish()


@row(COMPLETED)
def test_inputs_hang_for_a_while(scene):
    """The crew does not answer for a while before the kickoff."""
    scene.connect(extra=IMPATIENT)
    scene.crew.faults.hang(on="inputs", times=4)
    scene.start()
    scene.finish()


@row(COMPLETED, core=True)
def test_kickoff_429_with_seconds(scene):
    """The crew answers the kickoff with 429 and Retry-After in seconds."""
    scene.crew.faults.answer(429, retry_after=5, on="kickoff")
    scene.start()
    scene.finish()
    assert waited(scene, "kickoff") >= 5


@row(COMPLETED)
def test_kickoff_429_with_a_date(scene):
    """The crew answers the kickoff with 429 and Retry-After as a date."""
    scene.crew.faults.answer(429, retry_after=6, retry_after_date=True, on="kickoff")
    scene.start()
    scene.finish()
    assert waited(scene, "kickoff") >= 4  # a date has whole seconds


@row(COMPLETED_IN_ATTEMPT_2, retries=1)
def test_kickoff_429_until_the_retry(scene):
    """The crew answers the kickoff with 429 until the attempt fails."""
    scene.crew.faults.answer(429, on="kickoff", times=3)
    scene.start()
    scene.finish()


@row(UNCERTAIN_AND_NOT_STARTED, ways=RUN, core=True, retries=2)
def test_kickoff_503_with_seconds(scene):
    """The crew answers the kickoff with 503 and Retry-After in seconds."""
    scene.crew.faults.answer(503, retry_after=1, on="kickoff")
    scene.start()


@row(UNCERTAIN, retries=2)
def test_kickoff_503_with_a_date(scene):
    """The crew answers the kickoff with 503 and Retry-After as a date, although an execution started."""
    scene.crew.faults.answer(503, retry_after=1, retry_after_date=True, on="kickoff", after_taken=True)
    scene.start()


@row(UNCERTAIN, retries=2)
def test_kickoff_500(scene):
    """The crew answers the kickoff with 500, although an execution started."""
    scene.crew.faults.answer(500, on="kickoff", after_taken=True)
    scene.start()


@row(UNCERTAIN, retries=2)
def test_kickoff_502_with_html(scene):
    """A gateway answers the kickoff with 502 and HTML, although an execution started."""
    scene.crew.faults.answer(502, body="<html>Bad Gateway</html>", on="kickoff", after_taken=True)
    scene.start()


@row(UNCERTAIN_AND_NOT_STARTED, retries=2)
def test_kickoff_reset_before_it_is_taken(scene):
    """The connection is reset before the crew reads the kickoff."""
    scene.crew.faults.reset(on="kickoff")
    scene.start()


@row(UNCERTAIN, ways=RUN, retries=2)
def test_kickoff_reset_after_it_is_taken(scene):
    """The connection is reset after an execution started."""
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()


@row(UNCERTAIN, retries=2)
def test_kickoff_hangs(scene):
    """The crew never answers the kickoff."""
    scene.connect(extra=IMPATIENT)
    scene.crew.faults.hang(on="kickoff", after_taken=True)
    scene.start()


@row(UNCERTAIN, retries=2)
def test_kickoff_broken_json(scene):
    """The crew answers the kickoff with invalid JSON."""
    scene.crew.faults.truncate(on="kickoff")
    scene.start()


@row(UNCERTAIN, retries=2)
def test_kickoff_answer_breaks_off(scene):
    """The answer to the kickoff is cut off."""
    scene.crew.faults.truncate(on="kickoff", incomplete=True)
    scene.start()


@row(
    Ends("success", "the result", "completed", kickoffs=2, tries=2),
    ways=RUN,
    on_uncertain_kickoff="retry",
    retries=1,
)
def test_kickoff_retried_when_uncertain(scene):
    """The kickoff is uncertain, and `on_uncertain_kickoff` is `retry`."""
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()
    scene.finish(2)
