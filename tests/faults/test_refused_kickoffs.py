"""The kickoff is rejected."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import COMPLETED, RUN, Ends, row

TWO_INPUTS = Scenario.model_validate({"inputs": [{"name": "topic"}, {"name": "audience"}]})
# As deployed crews listed their inputs before crewai 1.15.38
TELLS_NAMES_ONLY = TWO_INPUTS.model_copy(update={"required_inputs": False})


REFUSED = Ends("failed", "nothing", "not started", kickoffs=0)


@row(REFUSED, ways=RUN, scenario=TWO_INPUTS, retries=2)
def test_refused_missing_input_that_is_listed(scene):
    """A required input is missing."""
    scene.start()


@row(
    REFUSED,
    ways=RUN,
    inputs={"topics": "ferries", "audience": "sailors"},
    scenario=TWO_INPUTS.model_copy(update={"dialect": "deployed", "kind": "flow"}),
    retries=2,
    why="A flow ignores unknown names and runs with its defaults, which is billed.",
)
def test_refused_misspelt_input(scene):
    """An input's name is misspelled."""
    scene.start()


@row(REFUSED, scenario=TELLS_NAMES_ONLY, retries=2)
def test_refused_missing_input(scene):
    """A listed input is missing, and the crew answers 422."""
    scene.start()


@row(REFUSED, ways=RUN, scenario=TELLS_NAMES_ONLY.model_copy(update={"dialect": "deployed"}), retries=2)
def test_refused_missing_input_by_a_deployed_crew(scene):
    """A listed input is missing, in the dialect of deployed crews."""
    scene.start()


@row(COMPLETED, ways=RUN, scenario=TWO_INPUTS.model_copy(update={"dialect": "deployed", "kind": "flow"}))
def test_fields_of_a_flow_that_are_not_given(scene):
    """A flow lists optional fields that the task does not send."""
    scene.start()
    scene.finish()


@row(REFUSED, retries=2)
def test_refused_401(scene):
    """The token is rejected (401)."""
    scene.connect(password="a-token-of-another-crew")
    scene.start()


@row(REFUSED, retries=2)
def test_refused_over_budget(scene):
    """The daily limit is reached (`max_kickoffs_per_day`)."""
    scene.connect(extra={"max_kickoffs_per_day": 0})
    scene.start()
