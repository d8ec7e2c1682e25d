"""What the tests of promises begin with. They ask for it with ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live import crew_of_a_task, shorten_intervals, shorten_pauses
from tests.integration.tasks import Log
from tests.promises.harness import World


@pytest.fixture
def world(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[World]:
    shorten_pauses(monkeypatch)
    monkeypatch.setattr("airflow_provider_crew.hooks.polling._FRESH_AFTER_REJECTION", 0.0)
    shorten_intervals(monkeypatch)
    with crew_of_a_task(monkeypatch) as crew:
        world = World(crew, Log(capfd, caplog), tmp_path, monkeypatch)
        world.connect()
        yield world
