"""The kickoff is rejected, or the crew's service fails."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED_IN_ATTEMPT_2, RUN, Ends, row
from tests.faults.scenes import RETRY_LATER

TWO_INPUTS = Scenario.model_validate({"inputs": [{"name": "topic"}, {"name": "audience"}]})


@row(Ends("failed", "nothing", "not started", kickoffs=0), ways=RUN, scenario=TWO_INPUTS, retries=2)
def test_missing_input(scene):
    """A required input is missing."""
    scene.start()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, core=("deferred",), retries=1, pre_execute=RETRY_LATER)
def test_service_refuses_until_the_retry(scene):
    """The crew refuses connections when the task starts, and works again before the retry."""
    scene.crew.faults.refuse()
    scene.start()
    scene.wait_for("running", tries=2)
    scene.crew.faults.clear()
    scene.now("retry")
    scene.finish()


@row(Ends("failed", "nothing", "running"), ways=RUN, core=("deferred",), retries=2)
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
