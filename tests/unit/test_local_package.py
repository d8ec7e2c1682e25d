"""What importing the local server costs."""

from __future__ import annotations

import subprocess
import sys


def test_pytest_plugin_loads_nothing_heavy():
    heavy = {"aiohttp", "pydantic", "airflow", "asyncio", "ssl"}
    script = (
        "import pytest, sys; before = set(sys.modules); import airflow_provider_crew.local.pytest_plugin; "
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert "airflow_provider_crew" in loaded.split()
    assert heavy.isdisjoint(loaded.split())
