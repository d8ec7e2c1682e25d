"""The local server against its own OpenAPI description."""

import os

import pytest
from hypothesis import HealthCheck, given, settings

from airflow_provider_crew.local import LocalCrewService, Scenario
from tests.integration.local_client import Client

# Of each operation. Always the same ones; many more when much bad input is tried.
EXAMPLES = 100 if "CREW_FUZZ_CASES" in os.environ else 5
SCENARIOS = {
    "documented": Scenario(inputs_shape="mapping", unknown_path="error_body", status_paths="id_first"),
    "deployed flow": Scenario(dialect="deployed", kind="flow", status_paths="id_first"),
}


@pytest.fixture(params=SCENARIOS)
def service(request):
    with LocalCrewService(SCENARIOS[request.param].without_waiting()) as running:
        yield running


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_as_described(service, mode):
    # Importing it takes half a second, which each process of the tests would wait for.
    import schemathesis
    from schemathesis.checks import not_a_server_error

    tried, described = [], schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    # Those of the deployed dialect answer 500 to a body that is no JSON, and describe it.
    unchecked = [not_a_server_error] if service.scenario.dialect == "deployed" else []
    for operation in described.get_all_operations():

        @given(case=operation.ok().as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        def answers_as_described(case):
            tried.append(case.operation.label)
            case.call_and_validate(headers=Client(service).headers, excluded_checks=unchecked)

        answers_as_described()

    assert {"GET /inputs", "POST /kickoff", "POST /stop/{kickoff_id}"} <= set(tried)
