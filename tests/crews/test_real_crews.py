"""A real crew behind the local server, as a task meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.projects.engine import Project
from tests.crews.hosting import ENVIRONMENT, EXAMPLE, INPUTS, PYTHON, by_hand

pytestmark = pytest.mark.timeout(600)


def test_hook_returns_what_the_crew_returns_by_hand(tmp_path, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    returned = by_hand(tmp_path, **INPUTS)
    project = Project(EXAMPLE, python=Path(PYTHON))
    with LocalCrewService(Scenario(dialect="deployed"), project=project) as service:
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", service.connection_uri)
        result: Any = CrewHook().wait(CrewHook().kickoff(INPUTS), poll_interval=1)

    assert result.output == returned["raw"]
    assert result.usage
    assert result.usage["total_tokens"] == returned["token_usage"]["total_tokens"] > 0
    assert len(service.kickoffs) == 1
