"""The ways in which the local server takes an answer to a crew."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask

ASKS = ScenarioTask(name="first", output="A draft", human_input=True)
LAST = ScenarioTask(name="last", seconds=3600)


def serving(**keys: Any) -> LocalCrewService:
    return LocalCrewService(Scenario(inputs=(), tasks=(ASKS, LAST), dialect="deployed", **keys))


def started(service: LocalCrewService) -> tuple[str, str]:
    """Start an execution, and return its ID and that of its question."""
    kickoff_id = str(service.take({}, None, {}))
    return kickoff_id, service.execution(kickoff_id).standing(service.now()).question


def answer(service: LocalCrewService, **fields: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {service.token}"}
    return requests.post(f"{service.url}/resume", json=fields, headers=headers, timeout=30)


def state(service: LocalCrewService, kickoff_id: str) -> str:
    headers = {"Authorization": f"Bearer {service.token}"}
    return str(requests.get(f"{service.url}/status/{kickoff_id}", headers=headers, timeout=30).json()["state"])


def camel(kickoff_id: str, task_id: str, feedback: str = "Approved.", **more: Any) -> dict[str, Any]:
    ids = {"executionId": kickoff_id, "taskId": task_id}
    return ids | {"humanFeedback": feedback, "isApprove": True, **more}


@pytest.mark.parametrize("way", ["failing", "production"])
def test_documented_spelling_is_rejected_by_a_deployment(way):
    with serving(resume=way) as service:
        kickoff_id, question = started(service)

        response = answer(service, execution_id=kickoff_id, task_id=question, human_feedback="", is_approve=True)

        assert response.status_code == 422
        assert state(service, kickoff_id) == "NOT FOUND"


def test_other_spelling_is_rejected_as_documented():
    with serving(resume="documented") as service:
        kickoff_id, question = started(service)

        assert answer(service, **camel(kickoff_id, question)).status_code == 422
        response = answer(service, execution_id=kickoff_id, task_id=question, human_feedback="", is_approve=True)
        assert response.status_code == 200
        assert state(service, kickoff_id) == "RUNNING"


def test_answer_breaks_a_failing_crew_while_the_execution_waits():
    with serving(resume="failing") as service:
        kickoff_id, question = started(service)

        continued_as = answer(service, **camel(kickoff_id, question)).json()["kickoff_id"]

        assert (state(service, continued_as), state(service, kickoff_id)) == ("FAILED", "NOT FOUND")
        assert service.execution(kickoff_id).standing(service.now()).waiting
        assert len(service.kickoffs) == 1


def test_production_continues_under_another_id():
    with serving(resume="production") as service:
        kickoff_id, question = started(service)

        continued_as = answer(service, **camel(kickoff_id, question)).json()["kickoff_id"]

        assert (state(service, continued_as), state(service, kickoff_id)) == ("RUNNING", "NOT FOUND")
        assert len(service.kickoffs) == 1


def test_production_accepts_false_answers_without_effect():
    with serving(resume="production") as service:
        kickoff_id, question = started(service)

        for fields in (camel("false", question), camel(kickoff_id, "false")):
            returned = answer(service, **fields).json()["kickoff_id"]
            assert state(service, returned) == "NOT FOUND"
        assert service.execution(kickoff_id).standing(service.now()).question == question


def test_production_takes_any_longer_text_for_a_reason_to_work_again():
    with serving(resume="production") as service:
        kickoff_id, question = started(service)

        answer(service, **camel(kickoff_id, question, "Approved, but shorter"))

        at = service.execution(kickoff_id).standing(service.now())
        assert (at.done, at.waiting, at.question != question) == (0, True, True)


def test_production_wants_the_first_id_again():
    with serving(resume="production") as service:
        kickoff_id, question = started(service)
        continued_as = answer(service, **camel(kickoff_id, question, "Again")).json()["kickoff_id"]
        question = service.execution(kickoff_id).standing(service.now()).question

        answer(service, **camel(continued_as, question))
        assert service.execution(kickoff_id).standing(service.now()).waiting
        answer(service, **camel(kickoff_id, question))
        assert not service.execution(kickoff_id).standing(service.now()).waiting
