"""The local service against its own OpenAPI description."""

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask

SCENARIOS = {
    "documented": Scenario(),
    "deployed": Scenario(dialect="deployed", inputs_shape="objects", result_json={"a": 1}),
    "deployed, states only": Scenario(
        dialect="deployed",
        inputs_shape="mapping",
        unknown_execution="state",
        unknown_path="error_body",
        status_paths="id_first",
    ),
}

ONGOING = Scenario().tasks
ENDED = Scenario().without_waiting().tasks
FAILED = (ScenarioTask(name="research_task", error="out of credit"),)


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
    for operation in described(service).get_all_operations():

        @given(case=operation.ok().as_strategy(generation_mode=mode))
        @settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        def answers_as_described(case):
            tried.append(case.operation.label)
            case.call_and_validate(headers=by(service.token))

        answers_as_described()

    assert {"GET /inputs", "POST /kickoff"} <= set(tried)


@pytest.mark.parametrize("tasks", [ONGOING, ENDED, FAILED])
@pytest.mark.parametrize("scenario", [Scenario(), SCENARIOS["deployed"]])
def test_the_status_of_an_execution_is_as_described(scenario, tasks):
    with LocalCrewService(scenario.model_copy(update={"tasks": tasks})) as service:
        started = requests.post(
            f"{service.url}/kickoff",
            json={"inputs": {"topic": "tides", "audience": "sailors"}},
            headers=by(service.token),
            timeout=5,
        )
        status = described(service)["/status/{kickoff_id}"]["GET"].Case(
            path_parameters={"kickoff_id": started.json()["kickoff_id"]}
        )

        assert status.call_and_validate(headers=by(service.token)).status_code == 200

        service.set_status(service.kickoffs[0].kickoff_id, {"said": "nothing of use"})
        with pytest.raises(FailureGroup):
            status.call_and_validate(headers=by(service.token))


def test_the_refusals_are_as_described():
    with LocalCrewService(Scenario(user_token_may_kickoff=False)) as service:
        kickoff = described(service)["/kickoff"]["POST"].Case(
            body={"inputs": {"topic": "tides", "audience": "sailors"}}, media_type="application/json"
        )

        assert kickoff.call_and_validate(headers=by("wrong")).status_code == 401
        assert kickoff.call_and_validate(headers=by(service.user_token)).status_code == 403


def test_only_the_status_path_that_is_served_is_described():
    with LocalCrewService(Scenario(status_paths="status_first")) as service:
        paths = requests.get(f"{service.url}/openapi.json", timeout=5).json()["paths"]

    assert set(paths) == {"/inputs", "/kickoff", "/status/{kickoff_id}"}
