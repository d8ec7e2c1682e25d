"""The service refuses a kickoff."""

from __future__ import annotations

from rows import RUN, Ends, row

from airflow_provider_crew.local import Scenario

MENDED = "The crew was not kicked off, and a retry would not help: mend this, and clear the task."
TWO_INPUTS = Scenario.model_validate({"inputs": [{"name": "topic"}, {"name": "audience"}]})


def refused(*said: str) -> Ends:
    """Say what is to come of a kickoff that certainly started nothing, and never will."""
    return Ends("failed", (*said, MENDED), "nothing", "was never started", kickoffs=0)


@row(
    "An input is missing that the crew lists",
    refused("The crew needs inputs that are not given: audience. Given: topic.", "Nothing was started."),
    ways=RUN,
    scenario=TWO_INPUTS,
    retries=2,
)
def test_refused_missing_input_that_is_listed(scene):
    scene.start()


@row(
    "An input is missing, and validate_inputs is off, so that the kickoff is answered with 422",
    refused(
        "/kickoff answers 422. The service says: Missing inputs: These inputs are required: audience.",
        "The crew needs these inputs as well: audience.",
    ),
    scenario=TWO_INPUTS,
    validate_inputs=False,
    retries=2,
)
def test_refused_missing_input(scene):
    scene.start()


@row("The kickoff is answered with 400", refused("/kickoff answers 400. The service says: Bad Request"), retries=2)
def test_refused_400(scene):
    scene.crew.faults.answer(400, on="kickoff")
    scene.start()


@row(
    "The token is not accepted",
    refused(
        "The inputs are not checked, since the crew does not tell which it takes.",
        "/kickoff answers 401. The service says: Unauthorized",
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
    refused("/kickoff answers 404.", "There is no crew at this address: check the host in the connection."),
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
