"""What importing the local service may cost, and what is found there."""

import importlib
import subprocess
import sys

import pytest

from airflow_provider_crew import local
from airflow_provider_crew.local import pytest_plugin


def test_pytest_plugin_loads_nothing_heavy():
    heavy = {"aiohttp", "pydantic", "airflow", "asyncio", "ssl"}
    script = (
        "import pytest, sys; before = set(sys.modules); import airflow_provider_crew.local.pytest_plugin; "
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert "airflow_provider_crew" in loaded.split()
    assert heavy.isdisjoint(loaded.split())


@pytest.mark.parametrize("module", [local, pytest_plugin])
def test_pytest_plugin_needs_only_pytest(module, monkeypatch):
    for name in ("aiohttp", "pydantic", "airflow"):
        monkeypatch.setitem(sys.modules, name, None)

    assert importlib.reload(module) is module
