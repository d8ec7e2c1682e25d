"""The local service against its own OpenAPI description."""

import os

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.integration.local_client import Client

# Of each operation. Always the same ones; many more when much bad input is tried.
EXAMPLES = 100 if "CREW_FUZZ_CASES" in os.environ else 5
SCENARIOS = {
    "documented": Scenario(inputs_shape="objects"),
    "documented, on one path": Scenario(
        inputs_shape="mapping", unknown_path="error_body", status_paths="id_first"
    ),
    "deployed crew": Scenario(dialect="deployed", result_json={"a": 1}),
    "deployed flow": Scenario(dialect="deployed", kind="flow", status_paths="id_first"),
}

ONGOING = Scenario().tasks
ENDED = Scenario().without_waiting().tasks
FAILED = (ScenarioTask(name="research_task", error="out of credit"),)
WAITING = (ScenarioTask(name="research_task", human_input=True),)


@pytest.fixture(params=SCENARIOS)
def service(request):
    with LocalCrewService(SCENARIOS[request.param].without_waiting()) as running:
        yield running


def described(service):
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


def by(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_as_described(service, mode):
    tried = []
    # Those of the deployed dialect answer 500 to a body that is no JSON, and describe it.
    unchecked = [not_a_server_error] if service.scenario.dialect == "deployed" else []
    for operation in described(service).get_all_operations():

        @given(case=operation.ok().as_strategy(generation_mode=mode))
        @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        def answers_as_described(case):
            tried.append(case.operation.label)
            case.call_and_validate(headers=by(service.token), excluded_checks=unchecked)

        answers_as_described()

    assert {"GET /inputs", "POST /kickoff", "POST /stop/{kickoff_id}"} <= set(tried)


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_the_stop_of_an_execution_is_as_described(dialect):
    with LocalCrewService(Scenario(dialect=dialect)) as service:
        client = Client(service)
        stop = described(service)["/stop/{kickoff_id}"]["POST"]
        cases = [stop.Case(path_parameters={"kickoff_id": each}) for each in [client.kickoff()] * 2 + ["nobody"]]

        answers = [case.call_and_validate(headers=client.headers) for case in cases]

    assert [answer.status_code for answer in answers] == [200, 400, 404]


@pytest.mark.parametrize("tasks", [ONGOING, (*ENDED[:1], *ONGOING[1:]), ENDED, FAILED, WAITING])
@pytest.mark.parametrize("kind", ["crew", "flow"])
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_the_status_of_an_execution_is_as_described(dialect, kind, tasks):
    with LocalCrewService(Scenario(dialect=dialect, kind=kind, tasks=tasks)) as service:
        started = requests.post(
            f"{service.url}/kickoff",
            json={"inputs": {"topic": "tides", "audience": "sailors"}},
            headers=by(service.token),
            timeout=60,
        )
        status = described(service)["/status/{kickoff_id}"]["GET"].Case(
            path_parameters={"kickoff_id": started.json()["kickoff_id"]}
        )

        assert status.call_and_validate(headers=by(service.token)).status_code == 200
        service.revoke(service.kickoffs[0].kickoff_id)
        assert status.call_and_validate(headers=by(service.token)).status_code == 200

        service.set_status(service.kickoffs[0].kickoff_id, {"said": "nothing of use"})
        with pytest.raises(FailureGroup):
            status.call_and_validate(headers=by(service.token))
