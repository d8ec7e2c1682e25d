"""The fixture ``crew_service``."""

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.local_client import Client

FAILING = Scenario(inputs=(), tasks=(ScenarioTask(name="research", error="out of credit"),))


def test_by_default_an_execution_is_over_at_the_first_look(crew_service):
    assert (client := Client(crew_service)).status(client.kickoff())["status"] == "completed"
    assert len(crew_service.kickoffs) == 1


@pytest.mark.crew_scenario(FAILING)
def test_a_marker_sets_the_scenario(crew_service):
    assert (client := Client(crew_service)).status(client.kickoff({}))["error"] == "out of credit"
