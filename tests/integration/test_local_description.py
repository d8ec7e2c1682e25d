"""The local server against its own OpenAPI description."""

import os

import pytest
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

WORKS, ENDS, FAILS, ASKS = (
    ScenarioTask(name="work", **more)
    for more in ({"seconds": 60}, {}, {"error": "out of credit"}, {"human_input": True})
)


@pytest.fixture(params=SCENARIOS)
def service(request):
    with LocalCrewService(SCENARIOS[request.param].without_waiting()) as running:
        yield running


def described(service):
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


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
            case.call_and_validate(headers=Client(service).headers, excluded_checks=unchecked)

        answers_as_described()

    assert {"GET /inputs", "POST /kickoff", "POST /stop/{kickoff_id}"} <= set(tried)


@pytest.mark.parametrize("tasks", [[WORKS], [ENDS, WORKS], [ENDS], [FAILS], [ASKS]])
@pytest.mark.parametrize("kind", ["crew", "flow"])
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_status_and_stop_of_an_execution_are_as_described(dialect, kind, tasks):
    with LocalCrewService(Scenario(dialect=dialect, kind=kind, tasks=tasks)) as service:
        client, found = Client(service), described(service)
        kickoff_id = client.kickoff()
        status, stop = (
            found[path][method].Case(path_parameters={"kickoff_id": kickoff_id})
            for path, method in [("/status/{kickoff_id}", "GET"), ("/stop/{kickoff_id}", "POST")]
        )
        for case in (status, stop, status, stop):
            case.call_and_validate(headers=client.headers)

        service.set_status(kickoff_id, {"said": "nothing of use"})
        with pytest.raises(FailureGroup):
            status.call_and_validate(headers=client.headers)
