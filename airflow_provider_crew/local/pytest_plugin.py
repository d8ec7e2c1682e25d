"""
Pytest fixture ``crew_service``: a local server for tests of your DAGs.

The plugin is not loaded automatically, because not every pytest session with this provider needs it. Request it
in the ``conftest.py`` next to pytest's settings or in a test file::

    pytest_plugins = ["airflow_provider_crew.local.pytest_plugin"]

    def test_report(crew_service, monkeypatch):
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", crew_service.connection_uri)
        crew_service.faults.answer(503, retry_after=1, on="status")
        dag.test()
        assert crew_service.kickoffs[0].inputs == {"topic": "harbours", "audience": "sailors"}

Each test gets its own local server on a free port. Executions complete at the first poll. To use another scenario,
set a marker with a Scenario or with the path of a scenario file::

    @pytest.mark.crew_scenario(Scenario(tasks=[ScenarioTask(name="research", error="out of credit")]))
    def test_failure(crew_service): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_crew.local.server import LocalCrewService


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, as --strict-markers requires."""
    config.addinivalue_line(
        "markers", "crew_scenario(scenario): scenario of crew_service, a Scenario or the path of a scenario file"
    )


@pytest.fixture
def crew_service(request: pytest.FixtureRequest) -> Iterator[LocalCrewService]:
    """Provide a local server on a free port, with the scenario of the ``crew_scenario`` marker."""
    # Imported here, because this module is loaded in every session that uses it, and the server is large.
    from airflow_provider_crew.local.scenario import Scenario
    from airflow_provider_crew.local.server import LocalCrewService

    marker = request.node.get_closest_marker("crew_scenario")
    scenario = marker.args[0] if marker else Scenario().without_waiting()
    with LocalCrewService(scenario) as service:
        yield service
