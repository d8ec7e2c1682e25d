"""What tests of the command line begin with. They ask for it with ``pytest_plugins``."""

from __future__ import annotations

import pytest

from tests.integration.commands import Command


@pytest.fixture(params=["documented", "deployed"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # what the command sets for its own process
    monkeypatch.setenv("COLUMNS", "80")
    return Command(capsys, monkeypatch)
