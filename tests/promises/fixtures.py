"""What the tests of promises begin with. They ask for it with ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.live import INTERVALS, PAUSES, crew_of_a_task
from tests.integration.tasks import Log
from tests.promises.harness import World


@pytest.fixture
def world(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    timing: Callable[..., None],
) -> Iterator[World]:
    timing(**PAUSES, **INTERVALS, connection_age_if_rejected=0.0)
    with crew_of_a_task(monkeypatch, call_webhooks=True) as crew:
        world = World(crew, Log(capfd, caplog), tmp_path, monkeypatch)
        world.connect()
        yield world
