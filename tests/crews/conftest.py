"""How the tests of real crews are marked."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: run before every change lands")
