"""A user answers the crew under Required Actions, and the task sends the answer."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.answers.attempt import ANSWER, APPROVE, SEND_BACK
from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, Ends, paid_again, row
from tests.faults.test_people import ASKS
from tests.faults.test_required_actions import requests
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")

_LAST = ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="Briefing: {topic}")


def asking(*drafts: str, **changes: Any) -> Scenario:
    """Return a crew that asks about each of these drafts."""
    asks = [ScenarioTask(name=f"task_{text}", human_input=True, output=text) for text in drafts]
    return Scenario.model_validate(ASKS.model_dump() | {"tasks": [*asks, _LAST]} | changes)


def given(**changes: Any) -> dict[str, Any]:
    """Return the options of a row whose crew asks about one draft."""
    return {"scenario": asking("draft-1", **changes), "answer_in_airflow": True}


def asked(scene, draft: str) -> dict[str, Any]:
    """Wait until a user can answer a question about this draft, and return the request."""

    def found() -> dict[str, Any] | None:
        return next((each for each in requests(scene) if draft in each["body"]), None)

    request: dict[str, Any] = eventually(found, 240, 1.0)
    scene.wait_for("deferred")
    return request


def choose(scene, option: str, text: Any = None) -> None:
    """Answer the request."""
    task = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/taskInstances/{scene.task_id}/-1"
    answer = {"chosen_options": [option], "params_input": {"text": text}}
    scene.airflow.api.patch(f"{task}/hitlDetails", answer)


def sent(scene, times: int) -> list[dict[str, Any]]:
    """Wait until the crew has responded to this many answers, and return them."""
    scene.answered("resume", times)
    answers = [request.json for request in scene.crew.requests.on("resume")]
    assert len(answers) == times
    return answers


@row(COMPLETED, core=True, **given(resume="production"))
def test_answer_approves(scene):
    """A user approves the crew's draft."""
    scene.start()
    request = asked(scene, "draft-1")
    assert request["options"][:3] == [APPROVE, SEND_BACK, ANSWER]
    choose(scene, APPROVE)
    (answer,) = sent(scene, 1)
    assert answer["executionId"] == scene.execution()
    assert (answer["humanFeedback"], answer["isApprove"]) == ("Approved.", True)
    assert answer["humanInputWebhook"]["url"] == f"{scene.airflow.url}/crew/events"
    scene.finish()
