"""The service refuses a kickoff."""

from __future__ import annotations

from airflow_provider_crew.local import Scenario
from tests.faults.rows import RUN, Ends, row

MENDED = "Then clear the task: a retry would not help."
TWO_INPUTS = Scenario.model_validate({"inputs": [{"name": "topic"}, {"name": "audience"}]})
SAYS_WHAT_IT_NEEDS = TWO_INPUTS.model_copy(update={"inputs_shape": "objects"})


def refused(*said: str) -> Ends:
    """Say what is to come of a kickoff that certainly started nothing, and never will."""
    return Ends("failed", (*said, MENDED), "nothing", "was never started", kickoffs=0)


@row(
    "An input is missing of which the crew says that it needs it",
    refused(
        "The crew needs inputs that are not given: audience.",
        "Given: topic.",
        "Nothing was started, and there is nothing to pay for.",
    ),
    ways=RUN,
    scenario=SAYS_WHAT_IT_NEEDS,
    retries=2,
)
def test_refused_missing_input_that_is_listed(scene):
    scene.start()


@row(
    "An input is missing, and one is given that looks like it and that the crew does not list",
    refused("'topics'", "'topic'", "Nothing was started, and there is nothing to pay for."),
    ways=RUN,
    inputs={"topics": "ferries", "audience": "sailors"},
    scenario=TWO_INPUTS.model_copy(update={"dialect": "deployed", "kind": "flow"}),
    retries=2,
    why="A flow drops names that it does not know, and runs on its defaults, paid.",
)
def test_refused_misspelt_input(scene):
    scene.start()


@row(
    "An input is missing that the crew merely lists, so that the kickoff is answered with 422",
    refused(
        "The crew lists inputs that are not given: audience.",
        "/kickoff answers 422. The service says: Missing inputs: These inputs are required: audience.",
    ),
    scenario=TWO_INPUTS,
    retries=2,
)
def test_refused_missing_input(scene):
    scene.start()


@row(
    "An input is missing that the crew merely lists, in the dialect of deployed crews",
    refused(
        "The crew lists inputs that are not given: audience.",
        "/kickoff answers 422. The service says: Missing inputs: audience.",
    ),
    ways=RUN,
    scenario=TWO_INPUTS.model_copy(update={"dialect": "deployed"}),
    retries=2,
)
def test_refused_missing_input_by_a_deployed_crew(scene):
    scene.start()


@row(
    "A flow lists fields that are not given, which it does not need",
    Ends("success", ("The crew lists inputs that are not given: audience.",), "the result", "has completed"),
    ways=RUN,
    scenario=TWO_INPUTS.model_copy(update={"dialect": "deployed", "kind": "flow"}),
)
def test_fields_of_a_flow_that_are_not_given(scene):
    scene.start()
    scene.finish()


@row("The kickoff is answered with 400", refused("/kickoff answers 400. The service says: Bad Request"), retries=2)
def test_refused_400(scene):
    scene.crew.faults.answer(400, on="kickoff")
    scene.start()


@row(
    "The token is not accepted",
    refused(
        "/inputs answers 401. The service says: Unauthorized",
        "renew it in the connection with the one on the crew's Status tab.",
    ),
    retries=2,
)
def test_refused_401(scene):
    scene.connect(password="a-token-of-another-crew")
    scene.start()


@row(
    "The token may not kick off",
    refused(
        "/kickoff answers 403. The service says: Forbidden",
        "use the organization's token, or have the user's permissions widened.",
    ),
    retries=2,
)
def test_refused_403(scene):
    scene.crew.faults.answer(403, on="kickoff")
    scene.start()


@row(
    "There is no crew at the address any more",
    refused("/kickoff answers 404.", "There is no crew at this address", "Check the host in the connection."),
    retries=2,
)
def test_refused_404(scene):
    scene.crew.faults.answer(404, body={"detail": "Not Found"}, on="all", times=10)
    scene.start()


@row(
    "The kickoff is redirected",
    refused(
        "/kickoff answers 308.",
        "It redirects to https://elsewhere.example/kickoff, which is not followed. If that is where the crew is "
        "now, put that address into the connection.",
    ),
    retries=2,
)
def test_refused_redirect(scene):
    scene.crew.faults.redirect("https://elsewhere.example/kickoff?session=secret", 308, on="kickoff")
    scene.start()


@row(
    "The connection allows no more kickoffs today (`max_kickoffs_per_day`)",
    refused("There were 0 kickoffs today, and max_kickoffs_per_day allows no more."),
    retries=2,
)
def test_refused_over_budget(scene):
    scene.connect(extra={"max_kickoffs_per_day": 0})
    scene.start()
