"""The fixture ``crew_service``, used here and in a pytest session of its own."""

import threading

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.local_client import Client

pytest_plugins = ["pytester"]

ASKED_FOR = 'pytest_plugins = ["airflow_provider_crew.local.pytest_plugin"]'
# The inner sessions have no settings, about which another plugin complains.
SESSION = ("-p", "no:asyncio", "-p", "no:cacheprovider", "--strict-markers")

FAILING = Scenario(inputs=(), tasks=(ScenarioTask(name="research", error="out of credit"),))


def test_by_default_an_execution_is_over_at_the_first_look(crew_service):
    assert (client := Client(crew_service)).status(client.kickoff())["status"] == "completed"
    assert len(crew_service.kickoffs) == 1


@pytest.mark.crew_scenario(FAILING)
def test_a_marker_sets_the_scenario(crew_service):
    assert (client := Client(crew_service)).status(client.kickoff({}))["error"] == "out of credit"


def test_the_service_ends_with_the_test(pytester):
    pytester.makeconftest(ASKED_FOR)
    pytester.makepyfile(
        """
        import pytest

        def test_first(crew_service, request):
            request.config.stash["url"] = crew_service.url

        @pytest.mark.crew_scenario("story.toml")
        def test_file(crew_service):
            assert crew_service.scenario.token == "from the file"
        """
    )
    pytester.makefile(".toml", story='token = "from the file"')
    before = threading.active_count()

    result = pytester.runpytest_inprocess(*SESSION)

    result.assert_outcomes(passed=2)
    assert threading.active_count() == before
