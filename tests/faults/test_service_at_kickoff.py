"""The crew's service fails at the kickoff."""

from __future__ import annotations

from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import RETRY_LATER

UNCERTAIN = Ends("failed", "nothing", "running")
UNCERTAIN_AND_NOT_STARTED = Ends("failed", "nothing", "not started", kickoffs=0)


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


@row(COMPLETED, core=True)
def test_kickoff_429_with_seconds(scene):
    """The crew answers the kickoff with 429 and Retry-After in seconds."""
    scene.crew.faults.answer(429, retry_after=5, on="kickoff")
    scene.start()
    scene.finish()
    first, second = scene.crew.requests.on("kickoff")
    assert second.received_at - first.received_at >= 5


@row(UNCERTAIN_AND_NOT_STARTED, ways=RUN, core=True, retries=2)
def test_kickoff_503_with_seconds(scene):
    """The crew answers the kickoff with 503 and Retry-After in seconds."""
    scene.crew.faults.answer(503, retry_after=1, on="kickoff")
    scene.start()


@row(UNCERTAIN, ways=RUN, retries=2)
def test_kickoff_reset_after_it_is_taken(scene):
    """The connection is reset after an execution started."""
    scene.crew.faults.reset(on="kickoff", after_taken=True)
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
