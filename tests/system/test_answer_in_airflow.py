"""A person answers the crew of the example DAG, through Airflow's REST API."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

import pytest

from airflow_provider_crew.answers.attempt import APPROVE, SEND_BACK
from tests.airflow_runs import eventually
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3."),
]


def test_example_sends_the_answers_of_a_person(airflow, start, crews):
    run = start("crew_answer_in_airflow", crew="crew_answering")
    path = f"dags/{run.dag_id}/dagRuns/{quote(run.run_id, safe='')}"

    def asks() -> bool:
        details = airflow.api.get(f"{path}/hitlDetails", response_received=False)["hitl_details"]
        return any(APPROVE in detail["options"] for detail in details) and run.may_be_answered("report")

    for number, (option, text) in enumerate(((SEND_BACK, "Shorter, please"), (APPROVE, None)), start=1):
        eventually(asks, pause=1.0)
        answer = {"chosen_options": [option], "params_input": {"text": text}}
        airflow.api.patch(f"{path}/taskInstances/report/-1/hitlDetails", answer)
        eventually(partial(_has_sent, crews, number), pause=1.0)

    assert run.wait() == "success"
    assert _answers(crews) == [False, True]
    assert len(crews["answering"].kickoffs) == 1


def _has_sent(crews, number: int) -> bool:
    return len(_answers(crews)) == number


def _answers(crews) -> list[bool]:
    return [request.json["isApprove"] for request in crews["answering"].requests.on("resume")]
