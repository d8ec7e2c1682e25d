"""A real crew behind the local server, as a task meets it, and answered as from Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_crew.answers.attempt import APPROVE, SEND_BACK
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.projects.engine import Project
from tests.crews.hosting import ENVIRONMENT, EXAMPLE, INPUTS, PROJECTS, PYTHON, by_hand
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures", "tests.integration.dialog_fixtures"]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def crew_options(request, monkeypatch):
    for name, value in {**ENVIRONMENT, "PYTHONPATH": str(PROJECTS)}.items():
        monkeypatch.setenv(name, value)
    project = Project(f"scripted_crews:{request.param}", python=Path(PYTHON))
    return {"scenario": Scenario(dialect="deployed", resume="production"), "project": project}


@pytest.fixture
def real(dialog):
    dialog.option = APPROVE
    dialog.task_with(inputs={"topic": "ferries"})
    return dialog


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")
@pytest.mark.parametrize("crew_options", ["reviewed"], indirect=True)
def test_crew_changes_its_draft_until_it_is_approved(real):
    waiting = real.asked()
    assert "A draft" in real.requests[-1]["body"]
    waiting = real.asked(real.chosen(waiting, SEND_BACK, "Make it shorter"))
    assert "A draft and shorter" in real.requests[-1]["body"]

    result = real.watched(real.chosen(waiting, APPROVE))

    assert result["output"] == "A draft and shorter"
    assert [answer["humanFeedback"] for answer in real.answers] == ["Make it shorter", "Approved."]
    assert {answer["executionId"] for answer in real.answers} == {real.crew.kickoffs[0].kickoff_id}
    assert len(real.crew.kickoffs) == 1


@pytest.mark.core
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
